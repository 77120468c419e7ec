# A changed manifest restarts its program when the kubelet comes to it. Whoever goes on
# to the next node has to wait for that: without the API no work can be taken away from
# it, and without a controller manager Services go on asking pods that have ended.
manifests=/etc/kubernetes/manifests

sum_of() { # COMPONENT
  sha256sum 2>/dev/null <"$manifests/$1.yaml" | cut -d ' ' -f 1
}

# Before anything is written; once, until all that was written runs.
note_static_pods() {
  [ ! -e "$work/static-pods" ] || return 0
  for name in etcd kube-apiserver kube-controller-manager kube-scheduler; do
    echo "$name $(sum_of "$name")"
  done >"$work/static-pods.new" && mv "$work/static-pods.new" "$work/static-pods"
}

# A kubelet that has just started puts up volumes for the pods that it found. If their
# manifests change then, it waits two minutes for volumes that nobody wants any more.
await_kubelet() {
  for _ in 1 2 3 4 5 6 7 8 9 10; do
    systemctl -q is-active kubelet.service || return 0
    up=$(date -d "$(systemctl show --timestamp=unix --property=ActiveEnterTimestamp --value kubelet.service)" +%s) || return 0
    [ $(($(date +%s) - up)) -lt 10 ] || return 0
    sleep 1
  done
}

runs_since() { # COMPONENT TIME
  kubectl --request-timeout=5s -n kube-system get pod "$1-$node" -o json 2>/dev/null | jq -e --argjson since "$2" '
    any(.status.conditions[]?; .type == "Ready" and .status == "True")
    and all(.status.containerStatuses[]; (.state.running.startedAt // "1970-01-01T00:00:00Z" | fromdate) >= $since)' >/dev/null
}

# Of several only one works, and says so every two seconds.
leads_since() { # COMPONENT TIME
  kubectl --request-timeout=5s -n kube-system get lease "$1" -o json 2>/dev/null |
    jq -e --argjson since "$2" '.spec.renewTime | sub("\\.[0-9]+"; "") | fromdate >= $since' >/dev/null
}

until_in_time() { # WHAT COMMAND...
  what=$1 end=$(($(date +%s) + ${limit:-180}))
  shift
  until "$@"; do
    if [ "$(date +%s)" -ge "$end" ]; then
      echo "$what does not come up again; journalctl -u kubelet and /var/log/pods say why." >"$work/output"
      return 1
    fi
    tell init "$what restarts"
    sleep 0.5
  done
}

await_static_pods() {
  [ -e "$work/static-pods" ] || return 0
  admin_here || return
  moved=
  while read -r name sum; do
    [ "$(sum_of "$name")" != "$sum" ] || continue
    moved=$name
    until_in_time "$name" runs_since "$name" "$(stat -c %Y "$manifests/$name.yaml")" || return
  done <"$work/static-pods"
  if [ -n "$moved" ]; then
    now=$(date +%s)
    until_in_time kube-controller-manager leads_since kube-controller-manager "$now" &&
      until_in_time kube-scheduler leads_since kube-scheduler "$now" || return
  fi
  rm -f "$work/static-pods"
}
