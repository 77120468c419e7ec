# Join an existing cluster.

# read_identity: set $address and $node_name from node.json. It fails if this file does not exist yet.
read_identity() {
  [ -s "$NODE_FILE" ] && address=$(jq -er .address "$NODE_FILE") && node_name=$(jq -er .name "$NODE_FILE")
}

wait_for_identity() {
  until read_identity; do
    report_phase waiting "$NODE_FILE, which contains the node's name and address, does not exist"
    sleep 2
  done
}

# is_registered reports whether the kubelet has a certificate of the cluster. With a certificate, the kubelet has registered the
# node with the API server.
is_registered() {
  [ -s /etc/kubernetes/kubelet.conf ] && [ -s /var/lib/kubelet/pki/kubelet-client-current.pem ]
}

wait_for_credentials() {
  local file=${JOIN_TOKEN:-$JOIN_CONFIG}
  until [ -s "$file" ]; do
    report_phase waiting "the credentials to join are not in $file"
    sleep 0.5
  done
}

# wait_for_cluster_info ADDRESS: wait until kubeadm init has published the ConfigMap cluster-info. kubeadm init publishes it last,
# after all else that a node needs to join.
wait_for_cluster_info() {
  local tries=0
  until query_api "$1" /api/v1/namespaces/kube-public/configmaps/cluster-info >/dev/null; do
    report_phase waiting "the API at $1:$PORT does not answer yet, or the cluster is being created"
    # Report this wait only after some attempts, because the creation of a cluster takes less than a minute.
    tries=$((tries + 1))
    if [ "$tries" -le 120 ]; then sleep 0.5; else sleep 3; fi
  done
}

# wait_for_readable_api KUBECONFIG [SERVER]: wait until the API server accepts requests of the user in the kubeconfig. An API
# server that is down is not a failure of this node.
wait_for_readable_api() {
  until kubectl --kubeconfig="$1" --request-timeout=5s get --raw /readyz >/dev/null 2>"$work/output"; do
    report_phase waiting "the API does not answer: $(summarize_output)"
    sleep 2
  done
}

# write_join_kubeconfig: write the kubeconfig that kubeadm join uses. Its user is this node, so the API server signs a certificate
# for this node's kubelet, and for no other. Its server is the endpoint even if the node joins through another control plane:
# kubeadm before 1.33 gives this server to the kubelet, and the other control plane may be removed later.
write_join_kubeconfig() {
  jq --arg server "https://$ENDPOINT:$PORT" '.clusters[0].cluster.server = $server' "$JOIN_CONFIG" >"$work/join.conf"
}

# join_cluster [PEER]: join through the control plane with the address PEER, or else through the endpoint.
join_cluster() {
  local file
  wait_for_credentials
  wait_for_cluster_info "${1:-$ENDPOINT}"
  report_phase join
  [ -n "$JOIN_TOKEN" ] || write_join_kubeconfig || return
  run_preflights join "${1:-}" && file=$(write_kubeadm_config join "${1:-}") || return
  run_logged kubeadm join --config "$file"
}

join_worker() {
  # For a worker, the join is complete when the node is registered, because a worker does not need the later steps of kubeadm
  # join.
  is_registered || join_cluster || return
  write_time_record joined
}

# annotate_cri_socket: set the annotation with the socket of the container runtime on the Node object, with the credentials of the
# kubelet. kubeadm expects this annotation.
annotate_cri_socket() {
  [ "$(read_record socket)" != "$CRI_SOCKET" ] || return 0
  local tries=0
  wait_for_readable_api /etc/kubernetes/kubelet.conf
  # Repeat the command, because the kubelet registers the node only some time after it has received its certificate.
  until run_logged kubectl --kubeconfig=/etc/kubernetes/kubelet.conf --request-timeout=10s annotate --overwrite node "$node_name" \
    "kubeadm.alpha.kubernetes.io/cri-socket=$CRI_SOCKET"; do
    tries=$((tries + 1))
    [ "$tries" -lt 30 ] && grep -qF '(NotFound)' "$work/output" || return
    report_phase waiting "the kubelet has not registered the node yet"
    sleep 0.3
  done
  write_record socket "$CRI_SOCKET"
}
