# shellcheck shell=bash disable=SC2154,SC2034
# The end of a lab.

# end_world kills every process of the lab and removes its cgroups. Mounts and network
# devices are in the lab's own namespaces, and end with them.
end_world() {
  local deadline=$((SECONDS + 20)) pid pids groups ended=()
  mapfile -t groups < <(left_cgroups)
  while :; do
    # Listed before the first kill: when the lab's first process ends, the kernel kills all
    # others, and a process that has ended is in no cgroup's list.
    mapfile -t pids < <({ world_pid || true; lab_pids ${groups[@]+"${groups[@]}"}; } | sort -u)
    [ ${#pids[@]} -gt 0 ] || break
    for pid in "${pids[@]}"; do
      [ "$pid" != $$ ] || die "this command runs inside the lab; run it outside"
    done
    [ $SECONDS -lt $deadline ] || die "these processes of the lab do not end: ${pids[*]}"
    kill -KILL "${pids[@]}" 2>/dev/null || true
    thaw_cgroups ${groups[@]+"${groups[@]}"}
    ended+=("${pids[@]}")
    sleep 0.02
  done
  await_end ${ended[@]+"${ended[@]}"}
  # A process that has just ended may still keep its cgroup for a moment.
  while [ ${#groups[@]} -gt 0 ]; do
    find "${groups[@]}" -depth -type d -exec rmdir {} + 2>/dev/null || true
    mapfile -t groups < <(left_cgroups)
    [ ${#groups[@]} -eq 0 ] && break
    [ $SECONDS -lt $deadline ] || die "these cgroups of the lab cannot be removed: ${groups[*]}"
    sleep 0.02
  done
  end_loops
}

# await_end waits until killed processes are gone. Zombies are reaped by the host's first
# process, some of which reap them at once and some never, so it waits for zombies for only a
# fifth of a second.
await_end() {
  local pid zombies=0 deadline=$((SECONDS + 20)) waiting
  while [ $SECONDS -lt $deadline ] && [ $zombies -lt 10 ]; do
    waiting=
    for pid in "$@"; do
      [ -d "/proc/$pid" ] || continue
      waiting=zombie
      if start_time "$pid" >/dev/null; then waiting=process; break; fi
    done
    [ -n "$waiting" ] || return 0
    [ $waiting = process ] || zombies=$((zombies + 1))
    sleep 0.02
  done
}

# lab_loops prints the loop devices whose file is in the lab's folder: the disks of
# containers that were not made by the lab itself.
lab_loops() {
  local file
  for file in /sys/block/loop*/loop/backing_file; do
    [[ $(cat "$file" 2>/dev/null) != "$lab_dir"/* ]] || { file=${file%/loop/backing_file}; echo "/dev/${file##*/}"; }
  done
}

# end_loops waits until the kernel has unmounted the file systems of the lab's namespaces,
# which detaches their loop devices. This happens shortly after the last process has ended.
end_loops() {
  local loops deadline=$((SECONDS + 20))
  while mapfile -t loops < <(lab_loops) && [ ${#loops[@]} -gt 0 ]; do
    [ $SECONDS -lt $deadline ] || die "these loop devices of the lab are still in use: ${loops[*]}"
    # The kernel does not detach a loop device that was attached, but not yet mounted.
    [ $SECONDS -lt $((deadline - 18)) ] || losetup -d "${loops[@]}" 2>/dev/null || true
    sleep 0.02
  done
}

lab_down() {
  [ "$(id -u)" = 0 ] || die "only root can stop a lab"
  is_lab_dir || die "$lab_dir is not empty and no lab made it"
  lock_lab
  end_world
  rm -rf --one-file-system "$lab_dir"
  # The parent of the labs' default folders, if this was the last lab.
  rmdir /tmp/nixbench-lab 2>/dev/null || true
}
