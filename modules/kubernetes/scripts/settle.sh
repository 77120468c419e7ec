# Take over what has changed since kubeadm ran. What is on this node comes first and
# needs no network; what is in the cluster is retried until the API answers.

part() { # PATH: the part of the template, to see whether it has changed
  jq -c "$1" "$TEMPLATE" | sha256sum | cut -d ' ' -f 1
}
changed() { # NAME PATH
  [ "$(remembered "$1")" != "$(part "$2")" ]
}
note() { # NAME PATH
  remember "$1" "$(part "$2")"
}

settled() {
  note names .cluster.apiServer.certSANs && note etcd .cluster.etcd && note proxy .proxy && note uploaded . &&
    remember version "$VERSION" && remember applied "$TEMPLATE"
}

settle() {
  [ "$(remembered applied)" != "$TEMPLATE" ] || return 0
  tell init "settings have changed"
  # From here on it is neither the old nor the new, whichever system comes next.
  rm -f "$memory/applied"
  upgrade || return
  note_static_pods || return
  file=$(documents cluster) || return
  if changed names .cluster.apiServer.certSANs; then
    rm -f "$memory/names" /etc/kubernetes/pki/apiserver.crt /etc/kubernetes/pki/apiserver.key
    run kubeadm init phase certs apiserver --config "$file" || return
    # The server notices a new certificate by itself.
    note names .cluster.apiServer.certSANs
  fi
  renew_static_pods "$file" "control-plane all" kube-apiserver kube-controller-manager kube-scheduler || return
  # Without data, etcd would take this for a new cluster.
  if changed etcd .cluster.etcd && [ -d /var/lib/etcd/member ]; then
    rm -f "$memory/etcd"
    renew_static_pods "$file" "etcd local" etcd || return
    note etcd .cluster.etcd
  fi
  remember applied "$TEMPLATE"
}

settle_cluster() {
  admin_here || return
  if changed uploaded .; then
    tell init "settings of the cluster have changed"
    file=$(documents cluster) || return
    rm -f "$memory/uploaded"
    run kubeadm init phase upload-config all --kubeconfig "$KUBECONFIG" --config "$file" || return
    if changed proxy .proxy; then
      rm -f "$memory/proxy"
      run kubeadm init phase addon kube-proxy --kubeconfig "$KUBECONFIG" --config "$file" || return
      run kubectl --request-timeout=30s -n kube-system rollout restart daemonset/kube-proxy || return
      note proxy .proxy
    fi
    note uploaded .
  fi
  [ "$(jq -r '.index // 1' "$NODE_FILE")" = 1 ] || return 0
  while read -r manifest; do
    key=manifest-$(printf '%s' "$manifest" | sha256sum | cut -c 1-32)
    sum=$(sha256sum <"$manifest")
    [ "$(remembered "$key")" != "$sum" ] || continue
    tell init "$manifest"
    run kubectl --request-timeout=30s apply --server-side --force-conflicts --field-manager=nixbench -f "$manifest" || return
    remember "$key" "$sum"
  done <"$MANIFESTS"
}
