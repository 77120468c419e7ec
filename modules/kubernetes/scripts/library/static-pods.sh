# Replace manifests of static pods, and wait until the new pods run. nixbench changes the next node only after
# that: without an API server nothing can be drained, and without a controller manager Services send requests
# to pods that have ended.
manifest_dir=/etc/kubernetes/manifests

manifest_sum() { # COMPONENT
  sha256sum 2>/dev/null <"$manifest_dir/$1.yaml" | cut -d ' ' -f 1
}

# record_manifest_sums: before manifests change, record their checksums for wait_for_static_pods. A checksum that is already
# recorded stays: the pod of an earlier change may not run yet.
record_manifest_sums() {
  local component
  [ ! -e "$work/static-pods" ] || return 0
  for component in etcd kube-apiserver kube-controller-manager kube-scheduler; do
    echo "$component $(manifest_sum "$component")"
  done >"$work/static-pods.new" && mv "$work/static-pods.new" "$work/static-pods"
}

# list_static_pod_ids COMPONENT: print the IDs of the component's static pods that run, or whose folders the kubelet has not
# removed yet. Only IDs without dashes count, because the IDs of other pods contain dashes.
list_static_pod_ids() {
  local dir id
  for dir in /var/lib/kubelet/pods/*/containers/"$1"; do
    id=${dir#/var/lib/kubelet/pods/} id=${id%%/*}
    case $id in *-* | '*') ;; *) echo "$id" ;; esac
  done
}

# wait_for_pods_removed ID...: wait at most 40 s until the kubelet has removed the pods. The kubelet removes the control groups of
# the pods last.
wait_for_pods_removed() {
  local id end=$(($(date +%s) + 40))
  for id in "$@"; do
    until [ -z "$(find /sys/fs/cgroup -maxdepth 6 -type d -name "*pod$id*" -print -quit 2>/dev/null)" ]; do
      [ "$(date +%s)" -lt "$end" ] || return 0
      sleep 0.2
    done
  done
}

# wait_for_kubelet_start: wait until the kubelet has run for 10 s. In that time, the kubelet mounts the volumes of the pods that
# it has found. If the manifest of a pod changes meanwhile, the kubelet waits two minutes for volumes that are not needed any
# more.
wait_for_kubelet_start() {
  local started
  for _ in 1 2 3 4 5 6 7 8 9 10; do
    systemctl -q is-active kubelet.service || return 0
    started=$(date -d "$(systemctl show --timestamp=unix --property=ActiveEnterTimestamp --value kubelet.service)" +%s) || return 0
    [ $(($(date +%s) - started)) -lt 10 ] || return 0
    sleep 1
  done
}

# update_static_pods CONFIG "PHASE..." COMPONENT...: have kubeadm write the manifests if they differ from its configuration.
# Changed manifests are removed first, and written when their pods have ended: a kubelet that finds a new manifest
# while the old pod still runs starts the new pod only after 10 to 15 s, in which other components lose their leases.
# The removed manifests are kept, because after a rollback the older system does not write them again.
update_static_pods() {
  local config=$1 component step changed=() ids=()
  read -r -a step <<<"$2"
  shift 2
  rm -rf "$work/manifests" && mkdir "$work/manifests" || return
  KUBEADM_INIT_DRYRUN_DIR=$work/manifests run_logged kubeadm init phase "${step[@]}" --config "$config" --dry-run || return
  for component in "$@"; do
    cmp -s "$work/manifests/$component.yaml" "$manifest_dir/$component.yaml" || changed+=("$component")
  done
  rm -rf "$work/manifests"
  [ ${#changed[@]} != 0 ] || return 0
  wait_for_kubelet_start
  for component in "${changed[@]}"; do
    mapfile -t -O ${#ids[@]} ids < <(list_static_pod_ids "$component")
    [ ! -e "$manifest_dir/$component.yaml" ] || { mkdir -p "$records/manifests" && mv "$manifest_dir/$component.yaml" "$records/manifests"; } || return
  done
  ! systemctl -q is-active kubelet.service || wait_for_pods_removed "${ids[@]}"
  run_logged kubeadm init phase "${step[@]}" --config "$config" && rm -rf "$records/manifests"
}

# restore_static_pods: restore the manifests that update_static_pods has removed and has not written again.
restore_static_pods() {
  local file
  for file in "$records"/manifests/*.yaml; do
    [ ! -e "$file" ] || [ -e "$manifest_dir/${file##*/}" ] || mv "$file" "$manifest_dir"
  done
}

# list_processes COMPONENT: print the process IDs of the component's static pods. It does not need the API, which may be down: it
# reads the pod's ID from the name of the folder with the pod's logs.
list_processes() {
  local folder file process
  for folder in "/var/log/pods/kube-system_$1-${node_name}_"*; do
    grep -ls "pod${folder##*_}" /proc/[0-9]*/cgroup | while read -r file; do
      process=${file%/cgroup}
      [ "$(cat "$process/comm" 2>/dev/null)" != "$(printf '%.15s' "$1")" ] || echo "${process#/proc/}"
    done
  done
}

# runs_since COMPONENT TIME reports whether a process of the component has started since TIME and answers. It checks processes,
# because the API may show an old status of the pod: after a restart of the API server, a kubelet may take half a minute to update
# it. Times are in whole seconds.
runs_since() {
  local process ticks booted=$(($(date +%s) - $(cut -d . -f 1 /proc/uptime))) found=
  for process in $(list_processes "$1"); do
    ticks=$(sed 's/.*) //' "/proc/$process/stat" 2>/dev/null | cut -d ' ' -f 20)
    [ -z "$ticks" ] || [ $((booted + ticks / 100)) -lt $(($2 - 2)) ] || found=yes
  done
  [ -n "$found" ] || return
  case $1 in
  etcd | kube-apiserver) kubectl --request-timeout=5s get --raw /readyz >/dev/null 2>&1 ;;
  esac
}

# has_leader_since COMPONENT TIME reports whether a leader has renewed the component's lease since TIME. The leader renews the
# lease every two seconds.
has_leader_since() {
  kubectl --request-timeout=5s -n kube-system get lease "$1" -o json 2>/dev/null |
    jq -e --argjson since "$2" '.spec.renewTime | sub("\\.[0-9]+"; "") | fromdate >= $since' >/dev/null
}

# wait_until_up COMPONENT COMMAND...: repeat COMMAND until it succeeds, for at most $restart_limit seconds, by default 180.
wait_until_up() {
  local component=$1 end=$(($(date +%s) + ${restart_limit:-180}))
  shift
  until "$@"; do
    if [ "$(date +%s)" -ge "$end" ]; then
      set_output "$component does not come up again; see journalctl -u kubelet and /var/log/pods."
      return 1
    fi
    report_phase "${phase:-init}" "$component restarts"
    sleep 0.5
  done
}

# wait_for_static_pods: wait until all components run whose manifests have changed since record_manifest_sums.
wait_for_static_pods() {
  local component sum last_changed='' now
  [ -e "$work/static-pods" ] || return 0
  use_admin_kubeconfig || return
  while read -r component sum; do
    [ "$(manifest_sum "$component")" != "$sum" ] || continue
    last_changed=$component
    wait_until_up "$component" runs_since "$component" "$(stat -c %Y "$manifest_dir/$component.yaml")" || return
  done <"$work/static-pods"
  if [ -n "$last_changed" ]; then
    now=$(date +%s)
    wait_until_up kube-controller-manager has_leader_since kube-controller-manager "$now" &&
      wait_until_up kube-scheduler has_leader_since kube-scheduler "$now" || return
  fi
  rm -f "$work/static-pods"
}
