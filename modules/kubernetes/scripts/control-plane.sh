# Create the cluster, or join it as one of its control planes.
#
# Two nodes must never both create it. So a node creates it only if no control plane
# answers *and* it has the permit, which is given to one node, once. A first control
# plane that was made anew has no permit: it joins, or waits until another one answers.

# The first other control plane that answers, in $peer.
find_peer() {
  for peer in $ENDPOINT $CONTROL_PLANES; do
    if [ "$peer" != "$own" ] && ask "$peer" /livez >/dev/null; then return 0; fi
  done
  peer=''
  return 1
}

create() {
  tell init
  # From here on it is ours to create, with or without the permit, which a reboot takes.
  remember creating "$(date -u +%Y-%m-%dT%H:%M:%SZ)" || return
  file=$(documents init) || return
  run kubeadm init --config "$file" --skip-token-print || return
  settled
}

# Where the endpoint is this node's address, and this node was made anew, what kubeadm
# sends there goes to the other control plane until our own server is up.
detour='nixbench: until the API is back'
make_detour() {
  iptables -w -t nat -A OUTPUT -p tcp -d "$ENDPOINT" --dport "$PORT" -m comment --comment "$detour" -j DNAT --to-destination "$peer:$PORT"
}

join_control_plane() {
  delete_rules nat "$detour"
  [ "$ENDPOINT" != "$own" ] || make_detour || return
  join "$peer"
  status=$?
  delete_rules nat "$detour"
  # kubeadm has written what the cluster runs, which this system may be ahead of.
  version=$(sed -n 's/^ *image: .*kube-apiserver:v//p' /etc/kubernetes/manifests/kube-apiserver.yaml 2>/dev/null)
  [ "$status" = 0 ] && settled && rm -f "$memory/applied" && remember version "${version:-$VERSION}"
}

become_control_plane() {
  place_keys && place_encryption || return
  peer=
  until [ -e "$memory/creating" ] || find_peer || [ -e "$PERMIT" ]; do
    tell waiting "no other control plane answers, and this node has no permit ($PERMIT) to create the cluster"
    sleep 0.3
  done
  if [ -e "$memory/creating" ] || [ -z "$peer" ]; then
    wait_for_token
    create || return
  else
    join_control_plane || return
  fi
  remember joined "$(date -u +%Y-%m-%dT%H:%M:%SZ)"
}
