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

# pods_of COMPONENT: the IDs of its static pods, which the kubelet runs or has not yet
# cleared away. Those of other pods have dashes.
pods_of() {
  for dir in /var/lib/kubelet/pods/*/containers/"$1"; do
    id=${dir#/var/lib/kubelet/pods/} id=${id%%/*}
    case $id in *-* | '*') ;; *) echo "$id" ;; esac
  done
}

# A pod's control group is the last that the kubelet removes before it is through with it.
until_ended() { # ID...
  end=$(($(date +%s) + 40))
  for id in "$@"; do
    until [ -z "$(find /sys/fs/cgroup -maxdepth 6 -type d -name "*pod$id*" -print -quit 2>/dev/null)" ]; do
      [ "$(date +%s)" -lt "$end" ] || return 0
      sleep 0.2
    done
  done
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

# renew_static_pods DOCUMENTS PHASE COMPONENT...: have kubeadm write the manifests, if they
# differ. A kubelet that finds another one while the old pod still runs comes back to it only
# after 10 to 15 seconds, and again, and meanwhile others lose their leases. So what changes
# first goes, and comes when its pod has ended. It is put aside until then: an older system that
# comes back meanwhile does not write it again.
renew_static_pods() {
  config=$1 step=$2 differ='' old=''
  shift 2
  rm -rf "$work/manifests" && mkdir "$work/manifests" || return
  # shellcheck disable=SC2086 # words
  KUBEADM_INIT_DRYRUN_DIR=$work/manifests run kubeadm init phase $step --config "$config" --dry-run || return
  for name in "$@"; do
    cmp -s "$work/manifests/$name.yaml" "$manifests/$name.yaml" || differ="$differ $name"
  done
  rm -rf "$work/manifests"
  [ -n "$differ" ] || return 0
  await_kubelet
  for name in $differ; do
    old="$old $(pods_of "$name")"
    [ ! -e "$manifests/$name.yaml" ] || { mkdir -p "$memory/manifests" && mv "$manifests/$name.yaml" "$memory/manifests"; } || return
  done
  # shellcheck disable=SC2086 # words
  ! systemctl -q is-active kubelet.service || until_ended $old
  # shellcheck disable=SC2086 # words
  run kubeadm init phase $step --config "$config" && rm -rf "$memory/manifests"
}

# What was put aside, and not written again.
restore_static_pods() {
  for file in "$memory"/manifests/*.yaml; do
    [ ! -e "$file" ] || [ -e "$manifests/${file##*/}" ] || mv "$file" "$manifests"
  done
}

# Found without the API, which may be away, or ended with its certificates: by the pod's id,
# which is in the name of the folder with its logs.
processes() { # STATIC-POD
  for folder in "/var/log/pods/kube-system_$1-${node}_"*; do
    for file in $(grep -ls "pod${folder##*_}" /proc/[0-9]*/cgroup); do
      process=${file%/cgroup}
      [ "$(cat "$process/comm" 2>/dev/null)" != "$(printf '%.15s' "$1")" ] || echo "${process#/proc/}"
    done
  done
}

# The API itself is no one to ask: when it has restarted, the kubelet may take half a minute
# to come back to it and say what runs. Times are in whole seconds.
runs_since() { # COMPONENT TIME
  booted=$(($(date +%s) - $(cut -d . -f 1 /proc/uptime))) new=
  for process in $(processes "$1"); do
    ticks=$(sed 's/.*) //' "/proc/$process/stat" 2>/dev/null | cut -d ' ' -f 20)
    [ -z "$ticks" ] || [ $((booted + ticks / 100)) -lt $(($2 - 2)) ] || new=yes
  done
  [ -n "$new" ] || return
  case $1 in
  etcd | kube-apiserver) kubectl --request-timeout=5s get --raw /readyz >/dev/null 2>&1 ;;
  esac
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
    tell "${phase:-init}" "$what restarts"
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
