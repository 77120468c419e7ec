# shellcheck shell=bash disable=SC2154,SC2034
# Every process of a lab is below a cgroup with the lab's id, in each hierarchy.
# So they can be found and killed even when all other state is lost: only processes that
# the lab started are in these cgroups.

# cgroup_mount prints where the hierarchy with a controller is mounted; the empty
# name is the unified hierarchy.
cgroup_mount() {
  awk -v want="$1" '{
    for (i = 7; $i != "-"; i++);
    if ($4 != "/") next
    if (want == "" && $(i+1) == "cgroup2") { print $5; exit }
    if (want != "" && $(i+1) == "cgroup" && index("," $(i+3) ",", "," want ",")) { print $5; exit }
  }' /proc/self/mountinfo
}

# unified_host succeeds if controllers are in the unified hierarchy (cgroup v2 only).
unified_host() {
  grep -qw memory "$(cgroup_mount '')/cgroup.controllers" 2>/dev/null
}

# lab_cgroups prints the lab's cgroup in each hierarchy. In the unified one it is
# at the top, because a cgroup there that has processes cannot delegate controllers.
# Elsewhere it is below this process's own cgroup, whose limits also apply to the lab.
lab_cgroups() {
  local controllers path mount
  while IFS=: read -r _ controllers path; do
    mount=$(cgroup_mount "$controllers")
    [ -n "$mount" ] || continue
    [ -n "$controllers" ] || path=/
    echo "$mount${path%/}/$lab_id"
  done < /proc/self/cgroup
}

# join_lab_cgroups moves the current (sub)shell into the lab's cgroups.
join_lab_cgroups() {
  local group file
  for group in $(lab_cgroups); do
    mkdir -p "$group"
    # A new cpuset of cgroup v1 has no processors and no memory, so no process can join it.
    if [ -e "$group/cgroup.clone_children" ] && [ -e "$group/cpuset.cpus" ]; then
      for file in cpuset.cpus cpuset.mems; do cat "$group/../$file" > "$group/$file"; done
      echo 1 > "$group/cgroup.clone_children"
    fi
    echo "$BASHPID" > "$group/cgroup.procs"
  done
}

# join_clients moves this process to a cgroup in which "lab down" finds it. The lab does not
# limit its resources, so it joins only the unified hierarchy.
join_clients() {
  local group
  group=$(cgroup_mount '')/$lab_id/clients
  mkdir -p "$group"
  echo "$BASHPID" > "$group/cgroup.procs"
}

# left_cgroups prints the lab's existing cgroups at any place in the hierarchies, because
# the lab may have been started from another cgroup than this process's.
left_cgroups() {
  local mounts
  mapfile -t mounts < <(awk '{
    for (i = 7; $i != "-"; i++);
    if ($(i+1) ~ /^cgroup2?$/) print $5
  }' /proc/self/mountinfo)
  [ ${#mounts[@]} -eq 0 ] || find "${mounts[@]}" -xdev -type d -name "$lab_id" -prune 2>/dev/null
}

# thaw_cgroups lets frozen processes in these cgroups go on. With cgroup v1 they do not end when they are killed. runc
# freezes a container for a moment, and leaves it frozen if runc is killed then.
thaw_cgroups() {
  local state
  while read -r state; do
    { echo THAWED >"$state"; } 2>/dev/null || true
  done < <([ $# -eq 0 ] || find "$@" -name freezer.state 2>/dev/null)
}

# lab_pids prints every process that is in one of these cgroups.
lab_pids() {
  [ $# -eq 0 ] || find "$@" -name cgroup.procs -exec cat {} + 2>/dev/null | sort -un | grep -vx 0 || true
}
