# Configuration files for kubeadm and kubectl, and requests to API servers.

# write_kubeadm_config init|join|cluster [PEER]: write kubeadm's configuration and print the file's name.
# It skips the preflight checks if they have passed, and the kubelet's bootstrap if the node is registered:
# kubeadm would take the Node object of an interrupted attempt for another machine's.
write_kubeadm_config() {
  local token=$JOIN_TOKEN registration_file=$REGISTRATION skip=''
  [ -s "$token" ] || token=/dev/null
  [ -s "$registration_file" ] || registration_file=/dev/null
  ! have_preflights_passed || skip=preflight
  ! [ "$1" = join ] || ! is_registered || skip="$skip kubelet-start"
  jq -rn --slurpfile template "$TEMPLATE" --slurpfile node "$NODE_FILE" --rawfile token "$token" --slurpfile registration "$registration_file" \
    --arg want "$1" --arg peer "${2:-}" --arg ttl "$TOKEN_TTL" --arg skip "$skip" -f "$DOCUMENTS" >"$work/$1.yaml.$$" &&
    mv "$work/$1.yaml.$$" "$work/$1.yaml" && echo "$work/$1.yaml"
}

# have_preflights_passed reports whether kubeadm's preflight checks have passed on this node. They are not
# repeated after that, because they fail if an interrupted attempt has already created files or processes of the cluster.
have_preflights_passed() {
  # Earlier releases of nixbench did not write this record. On their nodes kubeadm has run if one of the other
  # two is true.
  [ -e "$records/preflight" ] || [ -e "$records/creating" ] || is_registered
}

# run_preflights init|join [PEER]: run kubeadm's preflight checks once, before anything changes on the node.
run_preflights() {
  local file
  ! have_preflights_passed || return 0
  ! jq -e --arg command "$1" '.[$command].skipPhases // [] | index("preflight")' "$TEMPLATE" >/dev/null || return 0
  file=$(write_kubeadm_config "$@") && run_logged kubeadm "$1" phase preflight --config "$file" && write_time_record preflight
}

# use_admin_kubeconfig: set KUBECONFIG to an administrator's file for this node's own API server, because
# the server at the endpoint may be down.
use_admin_kubeconfig() {
  export KUBECONFIG=$work/admin.conf
  (umask 077 && sed "s|^\( *server:\).*|\1 https://$address:$PORT|" /etc/kubernetes/admin.conf >"$KUBECONFIG.$$") &&
    mv "$KUBECONFIG.$$" "$KUBECONFIG"
}

# query_api ADDRESS PATH: print a response of an API server that needs no login. The request contains no
# secret, so before the cluster's CA certificate is on the node the server's certificate is not verified.
query_api() {
  set -- "https://$1:$PORT$2" -k
  [ ! -s /etc/kubernetes/pki/ca.crt ] || set -- "$1" --cacert /etc/kubernetes/pki/ca.crt
  curl --noproxy '*' -sf --connect-timeout 3 --max-time 5 "$@"
}
