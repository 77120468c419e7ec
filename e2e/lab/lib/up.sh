# shellcheck shell=bash disable=SC2154,SC2034
# The start of a lab.

lab_up() {
  local image trees count=${1:-} started=$SECONDS
  [[ $count =~ ^[0-9]{1,3}$ ]] && [ "$count" -le 200 ] || usage_error "usage: lab up N, with at most 200 machines"
  [[ $memory =~ ^[1-9][0-9]*$ ]] || usage_error "--memory: expected a number of MiB, not $memory"
  local volume
  for volume in ${volumes[@]+"${volumes[@]}"}; do
    [[ $volume =~ ^(/[A-Za-z0-9_-]+)+$ ]] || usage_error "--volume: expected an absolute path, not $volume"
  done
  capabilities=default
  if [ -n "$kubernetes" ]; then
    capabilities=allow
    # containerd cannot mount overlays on an overlay; etcd and the kubelet are slower on one.
    volumes+=(/var/lib/containerd /var/lib/kubelet /var/lib/etcd)
  fi
  check_needs ${hypervisor:+hypervisor} || exit 1
  image=-
  if [ "$count" != 0 ]; then
    trees=$(machine_trees)
    # overlayfs lists the highest layer first.
    image=$(tac <<< "$trees" | paste -sd :)
    [ -z "$kubernetes" ] || await_inotify "$count"
  fi

  lock_lab
  world_pid >/dev/null && say "removing the running lab"
  end_world
  find "$lab_dir" -mindepth 1 -maxdepth 1 ! -name .nixbench-lab -exec rm -rf --one-file-system {} +
  # From here on a failure stops the lab, but keeps its logs until the next up or down.
  trap 'up_failed' EXIT
  trap 'exit 130' INT TERM HUP

  mkdir -p "$lab_dir"/{log,libvirt,conf,machines,host}
  [ -z "$hypervisor" ] || mkdir -p "$lab_dir"/{pool,dev}
  write_machines "$count"
  write_libvirt_conf
  start_world "$image"
  start_machines
  wait_for_machines
  machines_json > "$lab_dir/lab.json.new"
  mv "$lab_dir/lab.json.new" "$lab_dir/lab.json"
  trap - EXIT INT TERM HUP
  say "$([ -z "$hypervisor" ] || echo "a hypervisor with ")$count machines in $((SECONDS - started)) s; state in $lab_dir"
}

up_failed() {
  local status=$?
  trap - EXIT
  end_world
  say "the lab did not come up; its logs are in $lab_dir/log"
  exit "$status"
}

write_libvirt_conf() {
  cat > "$lab_dir/conf/libvirtd.conf" <<'EOF'
auth_unix_ro = "none"
auth_unix_rw = "none"
log_filters = "3:util 2:lxc 4:rpc"
log_outputs = "2:file:/var/log/libvirt/libvirtd.log"
EOF
  echo 'security_driver = "none"' > "$lab_dir/conf/lxc.conf"
  # libvirtd also starts the QEMU driver if it is installed, and ends if the driver's user
  # account is missing or a probe fails.
  cat > "$lab_dir/conf/qemu.conf" <<'EOF'
security_driver = "none"
user = "root"
group = "root"
dynamic_ownership = 0
remember_owner = 0
namespaces = []
EOF
}

# libvirt_uri [DRIVER] prints the URI of the lab's libvirt: lxc (the default) or qemu. Each
# has its own machines and networks.
# shellcheck disable=SC2120 # other files pass the driver
libvirt_uri() { echo "${1:-lxc}+unix:///system?socket=$lab_dir/libvirt/libvirt-sock"; }

# start_world IMAGE starts the ancestor of all other processes of the lab, and waits for
# libvirtd. The process enters the lab's cgroups before the cgroup namespace, whose root they
# become.
start_world() {
  local deadline pid
  # Descriptor 7, because a background job's standard input is /dev/null.
  if [ -n "$tied" ]; then exec 7<&0; else exec 7< /dev/null; fi
  (
    # This process keeps the lock, even if its parent is killed, until it is in the lab's
    # cgroups, by which a later command finds it.
    join_lab_cgroups
    close_descriptors
    exec setsid unshare --mount --propagation private --net --ipc --cgroup --pid --fork --kill-child \
      --mount-proc "$home/lib/world.sh" "$lab_dir" "$1" "$tied" <&7
  ) > "$lab_dir/log/world.log" 2>&1 &
  pid=$!
  # Without this, bash would print a message when the process is killed.
  disown "$pid"
  exec 7<&-
  echo "$pid $(start_time "$pid")" > "$lab_dir/world.pid"

  deadline=$((SECONDS + 30))
  until virsh -q -c "$(libvirt_uri)" uri >/dev/null 2>&1; do
    world_pid >/dev/null || { log_tail "$lab_dir/log/world.log" "$lab_dir/log/libvirtd.log"; die "the lab's namespaces could not be set up"; }
    [ $SECONDS -lt $deadline ] || { log_tail "$lab_dir/log/world.log" "$lab_dir/log/libvirtd.log"; die "libvirtd does not answer after 30 s"; }
    sleep 0.05
  done
}

start_machines() {
  local machine mac commands=()
  lab_network || return 0
  network_xml > "$lab_dir/conf/network.xml"
  virsh_quiet "net-define $lab_dir/conf/network.xml; net-start $network"
  while read -r machine _ mac _; do
    domain_xml "$machine" "$mac" > "$lab_dir/conf/$machine.xml"
    commands+=("define $lab_dir/conf/$machine.xml; start $machine")
  done < "$lab_dir/machines.table"
  [ ${#commands[@]} -eq 0 ] || virsh_quiet "$(printf '%s; ' "${commands[@]}")"
}

# virsh_quiet runs virsh, and shows its output only if it fails.
virsh_quiet() {
  timeout 60 virsh -q -c "$(libvirt_uri)" "$1" > "$lab_dir/log/virsh.log" 2>&1 < /dev/null && return
  log_tail "$lab_dir/log/virsh.log" "$lab_dir/log/libvirtd.log"
  die "virsh failed: $1"
}

# wait_for_machines waits until each machine accepts an SSH login and has booted.
wait_for_machines() {
  local machine waiting=() late=() i
  while read -r machine _; do
    (
      join_clients
      exec 9>&-
      deadline=$((SECONDS + 60))
      until ssh_in_lab -o ConnectTimeout=1 "$machine" 'systemctl is-system-running --wait' \
        > "$lab_dir/log/$machine.ssh" 2>&1 || grep -qx degraded "$lab_dir/log/$machine.ssh"; do
        [ $SECONDS -lt $deadline ] || exit 1
        sleep 0.1
      done
    ) &
    waiting+=("$!:$machine")
  done < "$lab_dir/machines.table"
  for i in ${waiting[@]+"${waiting[@]}"}; do
    wait "${i%%:*}" || late+=("${i#*:}")
  done
  [ ${#late[@]} -gt 0 ] || return 0
  for machine in "${late[@]}"; do
    log_tail "$lab_dir/log/$machine.ssh" "$lab_dir/log/lxc/$machine.log"
  done
  log_tail "$lab_dir/log/libvirtd.log"
  die "no SSH login after 60 s on ${late[*]}"
}
