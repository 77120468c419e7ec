# Apply settings that have changed since kubeadm ran. The files on the node come first, because they need no network. The settings
# that are stored in the cluster follow when the API answers.

# template_sum PATH: print a hash of the part of kubeadm's configuration at PATH, such as .cluster.etcd.
template_sum() {
  jq -c "$1" "$TEMPLATE" | sha256sum | cut -d ' ' -f 1
}
has_changed() { # RECORD PATH
  [ "$(read_record "$1")" != "$(template_sum "$2")" ]
}
record_applied() { # RECORD PATH
  write_record "$1" "$(template_sum "$2")"
}

# record_all_applied: record all settings as applied, after kubeadm init or kubeadm join.
record_all_applied() {
  record_applied names .cluster.apiServer.certSANs && record_applied etcd .cluster.etcd && record_applied proxy .proxy && record_applied uploaded . &&
    write_record version "$VERSION" && write_record applied "$TEMPLATE"
}

# reconcile_node: upgrade the control plane, and update certificates and static pods on this node.
reconcile_node() {
  local file
  [ "$(read_record applied)" != "$TEMPLATE" ] || return 0
  report_phase init "settings have changed"
  # Delete the record of applied settings: from here on, neither the old nor the new settings are fully applied, whichever system
  # runs next.
  rm -f "$records/applied"
  upgrade_control_plane || return
  record_manifest_sums || return
  file=$(write_kubeadm_config cluster) || return
  if has_changed names .cluster.apiServer.certSANs; then
    rm -f "$records/names" /etc/kubernetes/pki/apiserver.crt /etc/kubernetes/pki/apiserver.key
    # No restart is needed, because the API server reloads a changed certificate by itself.
    run_logged kubeadm init phase certs apiserver --config "$file" && record_applied names .cluster.apiServer.certSANs || return
  fi
  update_static_pods "$file" "control-plane all" kube-apiserver kube-controller-manager kube-scheduler || return
  # Do this only if etcd has data: with kubeadm's manifest, an etcd without data would start a new cluster.
  if has_changed etcd .cluster.etcd && [ -d /var/lib/etcd/member ]; then
    rm -f "$records/etcd"
    update_static_pods "$file" "etcd local" etcd && record_applied etcd .cluster.etcd || return
  fi
  write_record applied "$TEMPLATE"
}

# reconcile_cluster: update the settings that are stored in the cluster: kubeadm's configuration and kube-proxy. On the first
# control plane, also apply the manifests of the hive.
reconcile_cluster() {
  local file manifest key sum
  use_admin_kubeconfig || return
  if has_changed uploaded .; then
    wait_for_readable_api "$KUBECONFIG"
    report_phase init "settings of the cluster have changed"
    file=$(write_kubeadm_config cluster) || return
    rm -f "$records/uploaded"
    run_logged kubeadm init phase upload-config all --kubeconfig "$KUBECONFIG" --config "$file" || return
    if has_changed proxy .proxy; then
      rm -f "$records/proxy"
      run_logged kubeadm init phase addon kube-proxy --kubeconfig "$KUBECONFIG" --config "$file" || return
      run_logged kubectl --request-timeout=30s -n kube-system rollout restart daemonset/kube-proxy && record_applied proxy .proxy || return
    fi
    record_applied uploaded . || return
  fi
  [ "$(jq -r '.index // 1' "$NODE_FILE")" = 1 ] || return 0
  while read -r manifest; do
    key=manifest-$(printf '%s' "$manifest" | sha256sum | cut -c 1-32)
    sum=$(sha256sum <"$manifest")
    [ "$(read_record "$key")" != "$sum" ] || continue
    wait_for_readable_api "$KUBECONFIG"
    report_phase init "$manifest"
    run_logged kubectl --request-timeout=30s apply --server-side --force-conflicts --field-manager=nixbench -f "$manifest" || return
    write_record "$key" "$sum"
  done <"$MANIFESTS"
}
