# shellcheck shell=bash disable=SC2154,SC2034
# Commands on a running lab.

# need_world prints the number of the process that holds the namespaces.
need_world() {
  [ "$(id -u)" = 0 ] || die "only root can enter a lab"
  world_pid || die "no lab is up in $lab_dir; run: $home/lab up 3"
}

# in_lab runs a command in the lab's network namespace, and in no other one: it sees the host's
# files, libvirtd's socket among them, and the host's processes.
in_lab() { nsenter --net="/proc/$(need_world)/ns/net" -- "$@"; }

ssh_in_lab() { in_lab ssh -F "$lab_dir/ssh_config" "$@"; }

lab_run() {
  local pid
  [ $# -gt 0 ] || usage_error "usage: lab run COMMAND"
  pid=$(need_world)
  join_clients
  export NIXBENCH_LAB=$lab_dir LIBVIRT_DEFAULT_URI
  LIBVIRT_DEFAULT_URI=$(libvirt_uri)
  # exec, so that a signal to this process reaches the command.
  exec nsenter --net="/proc/$pid/ns/net" -- "$@"
}

lab_exec() {
  local machine=${1:-}
  [ $# -ge 2 ] || usage_error "usage: lab exec MACHINE COMMAND"
  shift
  need_world >/dev/null
  grep -q "^$machine " "$lab_dir/machines.table" || die "there is no machine $machine"
  join_clients
  ssh_in_lab "$machine" "$*"
}

lab_status() {
  need_world >/dev/null
  [ -e "$lab_dir/lab.json" ] || die "the lab in $lab_dir is still starting"
  cat "$lab_dir/lab.json"
  virsh -q -c "$(libvirt_uri)" list --all >&2
  [ ! -d "$lab_dir/pool" ] || virsh -q -c "$(libvirt_uri qemu)" list --all >&2
}

# lab_logs FOLDER copies libvirt's logs and the machines' journals. The journals are read from
# the disks, not over SSH, because a machine may not answer. A lab that did not come up has
# only libvirt's logs.
lab_logs() {
  local to=${1:-} pid machine
  [ -n "$to" ] || usage_error "usage: lab logs FOLDER"
  [ -e "$lab_dir/.nixbench-lab" ] || die "there is no lab in $lab_dir"
  mkdir -p "$to"
  cp -R "$lab_dir/log/." "$to/"
  pid=$(world_pid) || return 0
  [ ! -d "$lab_dir/pool" ] || guest_logs "$to"
  while read -r machine _; do
    nsenter --mount="/proc/$pid/ns/mnt" -- timeout 20 \
      chroot "$lab_dir/machines/$machine/root" journalctl --no-pager --merge -o short-precise \
      > "$to/$machine.journal" 2>&1 || true
  done < "$lab_dir/machines.table"
}

# guest_logs FOLDER copies what exists of machines that were made on a hypervisor: their XML,
# the logs of their consoles, and the journals of containers.
guest_logs() {
  local driver domain file groups pid levels
  for driver in qemu lxc; do
    timeout 20 virsh -q -c "$(libvirt_uri $driver)" list --all > "$1/$driver.list" 2>&1 || continue
    while read -r domain; do
      [ -n "$domain" ] || continue
      timeout 20 virsh -q -c "$(libvirt_uri $driver)" dumpxml "$domain" > "$1/$domain.xml" 2>&1 || true
      while read -r file; do
        [ ! -f "$file" ] || cp "$file" "$1/$domain.console"
      done < <(sed -n "s/.*<log file='\([^']*\)'.*/\1/p" "$1/$domain.xml")
    done < <(timeout 20 virsh -q -c "$(libvirt_uri $driver)" list --all --name)
  done
  # virsh lxc-enter-namespace fails outside of the lab's cgroup namespace. The first process of a
  # container has three numbers: on the host, in the lab, and 1 in the container.
  mapfile -t groups < <(left_cgroups)
  for pid in $(lab_pids ${groups[@]+"${groups[@]}"}); do
    read -r -a levels < <(sed -n 's/^NSpid:\s*//p' "/proc/$pid/status" 2>/dev/null) || continue
    [ ${#levels[@]} -eq 3 ] && [ "${levels[2]}" = 1 ] || continue
    domain=$(tr '\0' '\n' < "/proc/$pid/environ" | sed -n 's/^LIBVIRT_LXC_NAME=//p')
    [ -z "$domain" ] || timeout 20 chroot "/proc/$pid/root" journalctl --no-pager --merge -o short-precise \
      > "$1/$domain.journal" 2>&1 || true
  done
}
