# Configuration files for kubeadm and kubectl, and requests to API servers.

# write_kubeadm_config init|join|cluster [PEER]: write kubeadm's configuration and print the file's name.
# It skips the preflight checks if they have passed, and the kubelet's bootstrap if the node is registered:
# kubeadm would take the Node object of an interrupted attempt for another machine's. It skips the etcd phase if an
# earlier attempt has completed it: kubeadm promotes the etcd member in every attempt, and etcd refuses to promote a
# voting member ("can only promote a learner member").
write_kubeadm_config() {
  local token=$JOIN_TOKEN registration_file=$REGISTRATION skip=''
  [ -s "$token" ] || token=/dev/null
  [ -s "$registration_file" ] || registration_file=/dev/null
  ! have_preflights_passed || skip=preflight
  ! [ "$1" = join ] || ! is_registered || skip="$skip kubelet-start"
  ! [ "$1" = join ] || ! is_voting_member || skip="$skip $(list_etcd_phases)"
  jq -rn --slurpfile template "$TEMPLATE" --slurpfile node "$NODE_FILE" --rawfile token "$token" --slurpfile registration "$registration_file" \
    --arg want "$1" --arg peer "${2:-}" --arg ttl "$TOKEN_TTL" --arg skip "$skip" -f "$DOCUMENTS" >"$work/$1.yaml.$$" &&
    mv "$work/$1.yaml.$$" "$work/$1.yaml" && echo "$work/$1.yaml"
}

# is_voting_member reports whether this node's etcd runs and is a voting member of the cluster's etcd. It returns false if etcd
# does not answer. etcd does not answer this request while it is a learner, which has no vote yet.
is_voting_member() {
  local pki=/etc/kubernetes/pki/etcd
  [ -s /etc/kubernetes/manifests/etcd.yaml ] || return
  etcdctl --endpoints=https://127.0.0.1:2379 --cacert="$pki/ca.crt" --cert="$pki/server.crt" --key="$pki/server.key" \
    member list -w json 2>/dev/null </dev/null |
    jq -e --slurpfile node "$NODE_FILE" 'any(.members[]; .name == $node[0].name and (.isLearner | not))' >/dev/null
}

# list_etcd_phases: print the phases of kubeadm join that add the node's etcd member. kubeadm runs only one of the two, depending
# on a feature gate. All supported releases have the first phase. The other phase is printed only if kubeadm has it, because
# kubeadm rejects unknown names.
list_etcd_phases() {
  printf etcd-join
  ! kubeadm join --help 2>/dev/null | grep '^ */etcd ' >/dev/null || printf ' control-plane-join/etcd'
}

# have_preflights_passed reports whether kubeadm's preflight checks have already passed on this node. Checks that have passed are
# not repeated, because they fail if an interrupted attempt has created files or processes of the cluster.
have_preflights_passed() {
  # The records `preflight` and `creating`, and a registered node, show that kubeadm has run.
  [ -e "$records/preflight" ] || [ -e "$records/creating" ] || is_registered
}

# run_preflights init|join [PEER]: run kubeadm's preflight checks once, before anything changes on the node.
run_preflights() {
  local file
  ! have_preflights_passed || return 0
  ! jq -e --arg command "$1" '.[$command].skipPhases // [] | index("preflight")' "$TEMPLATE" >/dev/null || return 0
  file=$(write_kubeadm_config "$@") && run_logged kubeadm "$1" phase preflight --config "$file" && write_time_record preflight
}

# use_admin_kubeconfig: set KUBECONFIG to a kubeconfig of the administrator whose server is this node's own API server, because
# the server at the endpoint may be down.
use_admin_kubeconfig() {
  export KUBECONFIG=$work/admin.conf
  (umask 077 && sed "s|^\( *server:\).*|\1 https://$address:$PORT|" /etc/kubernetes/admin.conf >"$KUBECONFIG.$$") &&
    mv "$KUBECONFIG.$$" "$KUBECONFIG"
}

# query_api ADDRESS PATH: print the answer of an API server to a request without login. Before the cluster's CA certificate is on
# the node, the certificate of the API server is not verified. That is safe, because the request contains no secret.
query_api() {
  set -- "https://$1:$PORT$2" -k
  [ ! -s /etc/kubernetes/pki/ca.crt ] || set -- "$1" --cacert /etc/kubernetes/pki/ca.crt
  curl --noproxy '*' -sf --connect-timeout 3 --max-time 5 "$@"
}
