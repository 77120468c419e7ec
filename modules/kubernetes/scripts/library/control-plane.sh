# Create the cluster, or join it as a control plane.
#
# Two nodes must never both create a cluster. So a node creates the cluster only if no control plane answers *and* the node has
# the permit, a file that nixbench gives to one node, once. A first control plane whose machine was recreated has no permit: it
# joins, or waits until another control plane answers.

# find_peer: set $peer to the first other control plane that answers.
find_peer() {
  for peer in $ENDPOINT $CONTROL_PLANES; do
    if [ "$peer" != "$address" ] && query_api "$peer" /livez >/dev/null; then return 0; fi
  done
  peer=''
  return 1
}

create_cluster() {
  local file
  report_phase init
  # Record first that this node may create the cluster, because a reboot deletes the permit.
  write_time_record may-create && run_preflights init && write_time_record creating || return
  file=$(write_kubeadm_config init) || return
  run_logged kubeadm init --config "$file" --skip-token-print || return
  record_all_applied
}

# If this node was recreated and its own address is the endpoint, kubeadm's requests to the endpoint are redirected to another
# control plane until the API server of this node runs.
redirect_comment='nixbench: until the API is back'
redirect_endpoint() {
  iptables -w -t nat -A OUTPUT -p tcp -d "$ENDPOINT" --dport "$PORT" -m comment --comment "$redirect_comment" -j DNAT --to-destination "$peer:$PORT"
}

join_control_plane() {
  local status version
  delete_rules nat "$redirect_comment"
  [ "$ENDPOINT" != "$address" ] || redirect_endpoint || return
  join_cluster "$peer"
  status=$?
  delete_rules nat "$redirect_comment"
  [ "$status" = 0 ] && record_all_applied || return
  # Read the version of the cluster, which kubeadm has written into the manifests. It may be older than the version of this
  # system.
  version=$(sed -n 's/^ *image: .*kube-apiserver:v//p' /etc/kubernetes/manifests/kube-apiserver.yaml 2>/dev/null)
  rm -f "$records/applied" && write_record version "${version:-$VERSION}"
}

create_or_join_control_plane() {
  install_keys && install_encryption_config || return
  peer=
  until [ -e "$records/may-create" ] || [ -e "$records/creating" ] || find_peer || [ -e "$PERMIT" ]; do
    report_phase waiting "no other control plane answers, and this node has no permit ($PERMIT) to create the cluster"
    sleep 0.3
  done
  if [ -e "$records/may-create" ] || [ -e "$records/creating" ] || [ -z "$peer" ]; then
    [ -z "$JOIN_TOKEN" ] || wait_for_credentials
    create_cluster || return
  else
    join_control_plane || return
  fi
  write_time_record joined
}
