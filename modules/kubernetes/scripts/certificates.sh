# Renew the certificates of this control plane that expire soon. Then restart the static pods that use them, one
# after the other, because most of them read a certificate only when they start.
#
# The certificates and static pods are recorded before they change. An interrupted run may have left a certificate
# without its key, so the next run renews all recorded certificates again.
progress=log # the node is a member of the cluster, so its phase file does not change
start_program
renewing=$records/renewing
restarting=$records/restarting

certificate_user() { # CERTIFICATE: prints the static pod that uses it
  case $1 in
  apiserver* | front-proxy-client) echo kube-apiserver ;;
  etcd-server | etcd-peer) echo etcd ;;
  controller-manager.conf) echo kube-controller-manager ;;
  scheduler.conf) echo kube-scheduler ;;
  esac
}

# stop_processes COMPONENT ends the processes of a component with SIGTERM, and after 10 s with SIGKILL. The kubelet starts the pod
# again at once. Without SIGKILL, an API server would wait up to a minute until its watch connections end, and would accept no
# requests during this time.
stop_processes() {
  local old left process
  mapfile -t old < <(list_processes "$1")
  [ ${#old[@]} != 0 ] || return 0
  kill "${old[@]}" 2>/dev/null
  for _ in 1 2 3 4 5 6 7 8 9 10; do
    left=()
    for process in "${old[@]}"; do [ ! -e "/proc/$process" ] || left+=("$process"); done
    [ ${#left[@]} != 0 ] || return 0
    sleep 1
  done
  kill -KILL "${left[@]}" 2>/dev/null
}

# wait_for_etcd_members: wait at most a minute until all members of etcd are healthy, because a restart while another
# member is down may lose quorum. If a member stays down, the certificates are renewed nevertheless.
wait_for_etcd_members() {
  local pki=/etc/kubernetes/pki/etcd
  for _ in 1 2 3 4 5 6 7 8 9 10 11 12; do
    etcdctl --endpoints=https://127.0.0.1:2379 --cacert="$pki/ca.crt" --cert="$pki/server.crt" --key="$pki/server.key" \
      endpoint health --cluster >/dev/null 2>&1 && return
    report_phase wait "not all members of etcd answer"
    sleep 5
  done
}

# wait_for_restart COMPONENT TIME: wait until the component runs again, and delete it from the record.
wait_for_restart() {
  wait_until_up "$1" runs_since "$1" "$2" || exit_with_error "$(cat "$work/output")"
  case $1 in
  kube-controller-manager | kube-scheduler)
    wait_until_up "$1" has_leader_since "$1" "$(date +%s)" || exit_with_error "$(cat "$work/output")"
    ;;
  esac
  write_record restarting "$(grep -vxF -e "$1" "$restarting")"
}

read_identity || exit_with_error "$NODE_FILE does not contain the node's name and address."
exec 9>"$records/lock"
flock -w 900 9 || exit_with_error "nixbench-kubernetes.service has held the lock for 15 minutes: $(jq -r .message /run/nixbench/kubernetes.json)"

file=$(write_kubeadm_config cluster) || exit_with_error "kubeadm's configuration cannot be written."
kubeadm certs check-expiration --config "$file" -o json >"$work/certificates" 2>"$work/output" ||
  exit_with_error "kubeadm certs check-expiration: $(summarize_output)"
# list_expiring false: print the certificates that expire soon and whose CA key is on this node. list_expiring true: print the
# certificates that expire soon and whose CA key is not on this node.
list_expiring() {
  jq -r --argjson days "$RENEW_BEFORE" --argjson external "$1" '.certificates[]
    | select((.missing | not) and .residualTime < $days * 86400 and (.externallyManaged // false) == $external) | .name' "$work/certificates"
}
names=$({ read_record renewing; list_expiring false; } | sort -u)
if [ -n "$names" ]; then
  components=$({
    read_record restarting
    for name in $names; do certificate_user "$name"; done
  } | sort -u)
  if ! write_record restarting "$components" || ! write_record renewing "$names"; then
    exit_with_error "$records cannot be written."
  fi
  for name in $names; do
    echo "$name is renewed"
    kubeadm certs renew "$name" --config "$file" >"$work/output" 2>&1 || exit_with_error "kubeadm certs renew $name: $(summarize_output)"
  done
  rm -f "$renewing"
fi

if [ -e "$restarting" ]; then
  use_admin_kubeconfig || exit_with_error "/etc/kubernetes/admin.conf cannot be read."
  # If the API does not answer, wait up to 420 s for a pod: the kubelet delays the restart of a pod that has failed repeatedly by
  # up to five minutes.
  api_is_up='' restart_limit=420
  ! kubectl --request-timeout=5s get --raw /readyz >/dev/null 2>&1 || api_is_up=yes restart_limit=180
  later=()
  for component in etcd kube-apiserver kube-controller-manager kube-scheduler; do
    [ -e "$manifest_dir/$component.yaml" ] || continue
    grep -qxF -e "$component" "$restarting" || continue
    report_phase restart "$component restarts"
    [ "$component" != etcd ] || [ -z "$api_is_up" ] || wait_for_etcd_members
    now=$(date +%s)
    stop_processes "$component"
    case $api_is_up$component in
    yesetcd | yeskube-apiserver) wait_for_restart "$component" "$now" ;;
    # Wait for the other components after the loop, since no component depends on them. If the API was down, the components work
    # again only after all of them have restarted.
    *) later+=("$component=$now") ;;
    esac
  done
  for component in "${later[@]}"; do wait_for_restart "${component%=*}" "${component#*=}"; done
  rm -f "$restarting"
fi
external=$(list_expiring true | tr '\n' ' ')
[ -z "$external" ] || exit_with_error "The key of their authority is not on this node, so these end unless you renew them: $external"
