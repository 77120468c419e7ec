# Become a part of a cluster that is there, or is coming.

wait_for_identity() {
  until [ -s "$NODE_FILE" ] && own=$(jq -er .address "$NODE_FILE") && node=$(jq -er .name "$NODE_FILE"); do
    tell waiting "$NODE_FILE, which says who this node is, is not there"
    sleep 2
  done
}

# The kubelet has a certificate of the cluster: the API knows the node.
is_registered() {
  [ -s /etc/kubernetes/kubelet.conf ] && [ -s /var/lib/kubelet/pki/kubelet-client-current.pem ]
}

wait_for_token() {
  until [ -s "$JOIN_TOKEN" ]; do
    tell waiting "the join token is not in $JOIN_TOKEN"
    sleep 2
  done
}

# The API is worth asking once it has signed the cluster's information for our token.
wait_for_api() { # ADDRESS
  read -r token <"$JOIN_TOKEN"
  tries=0
  until ask "$1" /api/v1/namespaces/kube-public/configmaps/cluster-info | grep -qF "jws-kubeconfig-${token%%.*}"; do
    tell waiting "the API at $1:$PORT does not answer, or does not know our token yet"
    # A cluster that is being made is there within a minute.
    tries=$((tries + 1))
    if [ "$tries" -le 60 ]; then sleep 1; else sleep 3; fi
    # A new token may have come.
    read -r token <"$JOIN_TOKEN" || wait_for_token
  done
  token=''
}

join() { # [PEER]
  wait_for_token
  wait_for_api "${1:-$ENDPOINT}"
  tell join
  file=$(documents join "${1:-}") || return
  # An attempt that was cut short may have come as far as a Ready node, which kubeadm
  # would take for somebody else's.
  set --
  ! is_registered || set -- --skip-phases=kubelet-start
  run kubeadm join --config "$file" "$@"
}

join_worker() {
  # Nothing that kubeadm does after this point matters to a worker.
  is_registered || join || return
  remember joined "$(date -u +%Y-%m-%dT%H:%M:%SZ)"
}

# kubeadm's note of the runtime's socket, with the node's own rights.
note_socket() {
  [ "$(remembered socket)" != "$CRI_SOCKET" ] || return 0
  run kubectl --kubeconfig=/etc/kubernetes/kubelet.conf --request-timeout=10s annotate --overwrite node "$node" \
    "kubeadm.alpha.kubernetes.io/cri-socket=$CRI_SOCKET" || return
  remember socket "$CRI_SOCKET"
}
