# Renew what kubeadm has signed for this control plane and is about to end. Then restart,
# one after the other, the static pods that have it: most of them read it only once.
#
# What is to be renewed, and restarted, is written down before. A run that was cut short may
# have left a certificate without its key, so the next one renews all of it again.
renewing=$memory/renewing
restarting=$memory/restarting

# The node has long been a part of the cluster; what we do is in the journal alone.
tell() {
  [ "$2" = "${told:-}" ] || echo "$2"
  told=$2
}
fail() {
  echo "$1" >&2
  exit 1
}

holder() { # CERTIFICATE: the static pod that has it
  case $1 in
  apiserver* | front-proxy-client) echo kube-apiserver ;;
  etcd-server | etcd-peer) echo etcd ;;
  controller-manager.conf) echo kube-controller-manager ;;
  scheduler.conf) echo kube-scheduler ;;
  esac
}

# The kubelet starts it again at once. The API server would let its watchers go first,
# for up to a minute in which it serves nobody.
stop() { # STATIC-POD
  old=$(processes "$1")
  # shellcheck disable=SC2086 # words
  [ -z "$old" ] || kill $old 2>/dev/null
  for _ in 1 2 3 4 5 6 7 8 9 10; do
    left=
    for process in $old; do [ ! -e "/proc/$process" ] || left="$left $process"; done
    [ -n "$left" ] || return 0
    sleep 1
  done
  # shellcheck disable=SC2086
  kill -KILL $left 2>/dev/null
}

# While a member of etcd is away, another one less may be too many. One that stays away
# is no reason to let certificates end.
await_members() {
  pki=/etc/kubernetes/pki/etcd
  for _ in 1 2 3 4 5 6 7 8 9 10 11 12; do
    etcdctl --endpoints=https://127.0.0.1:2379 --cacert="$pki/ca.crt" --cert="$pki/server.crt" --key="$pki/server.key" \
      endpoint health --cluster >/dev/null 2>&1 && return
    tell wait "not all members of etcd answer"
    sleep 5
  done
}

await() { # STATIC-POD TIME: it is back, and need not be restarted again
  until_in_time "$1" runs_since "$1" "$2" || fail "$(cat "$work/output")"
  case $1 in
  kube-controller-manager | kube-scheduler) until_in_time "$1" leads_since "$1" "$(date +%s)" || fail "$(cat "$work/output")" ;;
  esac
  remember restarting "$(grep -vxF -e "$1" "$restarting")"
}

own=$(jq -er .address "$NODE_FILE") && node=$(jq -er .name "$NODE_FILE") || fail "$NODE_FILE does not say who this node is."
exec 9>"$memory/lock"
flock -w 900 9 || fail "nixbench-kubernetes.service is at work for 15 minutes: $(jq -r .message /run/nixbench/kubernetes.json)"

file=$(documents cluster) || fail "kubeadm's configuration cannot be written."
kubeadm certs check-expiration --config "$file" -o json >"$work/certificates" 2>"$work/output" ||
  fail "kubeadm certs check-expiration: $(last_words)"
ending() { # true|false: whether their authority's key is elsewhere
  jq -r --argjson days "$RENEW_BEFORE" --argjson elsewhere "$1" '.certificates[]
    | select((.missing | not) and .residualTime < $days * 86400 and (.externallyManaged // false) == $elsewhere) | .name' "$work/certificates"
}
names=$({ remembered renewing; ending false; } | sort -u)
if [ -n "$names" ]; then
  pods=$({
    remembered restarting
    for name in $names; do holder "$name"; done
  } | sort -u)
  remember restarting "$pods" && remember renewing "$names" || fail "$memory cannot be written."
  for name in $names; do
    echo "$name is renewed"
    kubeadm certs renew "$name" --config "$file" >"$work/output" 2>&1 || fail "kubeadm certs renew $name: $(last_words)"
  done
  rm -f "$renewing"
fi

if [ -e "$restarting" ]; then
  admin_here || fail "/etc/kubernetes/admin.conf cannot be read."
  # What has crashed again and again is made to wait for up to five minutes by the kubelet.
  alive='' limit=420
  ! kubectl --request-timeout=5s get --raw /readyz >/dev/null 2>&1 || alive=yes limit=180
  later=
  for pod in etcd kube-apiserver kube-controller-manager kube-scheduler; do
    grep -qxF -e "$pod" "$restarting" && [ -e "$manifests/$pod.yaml" ] || continue
    tell restart "$pod restarts"
    [ "$pod" != etcd ] || [ -z "$alive" ] || await_members
    now=$(date +%s)
    stop "$pod"
    case $alive$pod in
    yesetcd | yeskube-apiserver) await "$pod" "$now" ;;
    # Nobody asks these; and without the API nobody can be waited for until all are back.
    *) later="$later $pod=$now" ;;
    esac
  done
  for pod in $later; do await "${pod%=*}" "${pod#*=}"; done
  rm -f "$restarting"
fi
elsewhere=$(ending true | tr '\n' ' ')
[ -z "$elsewhere" ] || fail "The key of their authority is not on this node, so these end unless you renew them: $elsewhere"
