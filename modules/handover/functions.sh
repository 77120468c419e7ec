# shellcheck shell=bash disable=SC2034 # programs read `failed`
# Functions for programs that clean up after a scheduler. A function does nothing if nothing is left to clean up, so it may be
# called again. A function that cannot clean up prints what is left, sets `failed` to 1 and returns, so that the program continues
# with the next function.
failed=0

report_failure() { # TEXT
  echo "$*" >&2
  failed=1
}

# cgroup_folders PATTERN...: print the folders of the control groups that match. A pattern is a path below the root control group.
# With cgroup v1, a control group has a folder in each controller's hierarchy and in the hierarchy of systemd.
cgroup_folders() {
  local mount type pattern folder
  while read -r _ mount type _; do
    case $type in cgroup | cgroup2) ;; *) continue ;; esac
    for pattern; do
      for folder in "$mount"/$pattern; do # without quotes, so that bash expands the pattern
        [ ! -d "$folder" ] || printf '%s\n' "$folder"
      done
    done
  done </proc/self/mounts
}

# cgroup_processes PATTERN...: print the processes in the control groups that match, and in the control groups below them.
cgroup_processes() {
  local folders
  mapfile -t folders < <(cgroup_folders "$@")
  [ ${#folders[@]} -gt 0 ] || return 0
  find "${folders[@]}" -name cgroup.procs -exec cat {} + 2>/dev/null | sort -nu | grep -vx 0
}

# processes_in FOLDER PATTERN...: print the processes in the control groups that match whose working directory is FOLDER or a
# folder in it.
processes_in() {
  local folder=$1 process
  shift
  for process in $(cgroup_processes "$@"); do
    case $(readlink "/proc/$process/cwd" 2>/dev/null)/ in "$folder"/*) echo "$process" ;; esac
  done
}

# end_processes SECONDS COMMAND...: end the processes that COMMAND prints, for example `cgroup_processes kubepods.slice`. The
# processes get SIGTERM, and after SECONDS SIGKILL. With 0 SECONDS, they get SIGKILL at once.
end_processes() {
  local grace=$1 signal=TERM processes begun=$SECONDS
  shift
  [ "$grace" != 0 ] || signal=KILL
  while
    mapfile -t processes < <("$@")
    [ ${#processes[@]} -gt 0 ]
  do
    if [ $((SECONDS - begun)) -ge "$grace" ]; then
      signal=KILL
    fi
    if [ $((SECONDS - begun)) -gt $((grace + 15)) ]; then
      report_failure "these processes do not end: $(ps_names "${processes[@]}")"
      return
    fi
    thaw_processes "${processes[@]}"
    # Send SIGTERM only once, because some programs end at once when they get it a second time.
    [ "$signal" = sent ] || kill "-$signal" "${processes[@]}" 2>/dev/null
    [ "$signal" != TERM ] || signal=sent
    sleep 0.05
  done
}

# thaw_processes PROCESS...: let frozen processes continue. It is needed with cgroup v1, where frozen processes get no signal, not
# even SIGKILL. runc freezes a container for a moment. If runc is killed in this moment, the container stays frozen.
thaw_processes() {
  local mount='' folder type options process controllers path
  while read -r _ folder type options _; do
    case $type,$options, in cgroup,*,freezer,*) mount=$folder ;; esac
  done </proc/self/mounts
  [ -n "$mount" ] || return 0
  for process; do
    while IFS=: read -r _ controllers path; do
      [ "$controllers" != freezer ] || [ ! -e "$mount$path/freezer.state" ] || echo THAWED >"$mount$path/freezer.state"
    done <"/proc/$process/cgroup"
  done 2>/dev/null
}

# ps_names PROCESS...: print each process with its name.
ps_names() {
  local process
  for process; do
    printf '%s (%s) ' "$process" "$(cat "/proc/$process/comm" 2>/dev/null)"
  done
}

# remove_cgroups PATTERN...: remove control groups without processes.
remove_cgroups() {
  local folders begun=$SECONDS
  while
    mapfile -t folders < <(cgroup_folders "$@")
    [ ${#folders[@]} -gt 0 ]
  do
    if [ $((SECONDS - begun)) -gt 5 ]; then
      report_failure "these control groups cannot be removed: ${folders[*]}"
      return
    fi
    find "${folders[@]}" -depth -type d -exec rmdir {} \; 2>/dev/null
    sleep 0.05
  done
}

# remove_unit_cgroup UNIT: remove the control group of a systemd unit that does not run. systemd leaves the control group if the
# unit has left processes in it and the unit's file was removed. A control group that contains processes stays.
remove_unit_cgroup() {
  systemctl is-active --quiet "$1" || [ -n "$(cgroup_processes "system.slice/$1")" ] || remove_cgroups "system.slice/$1"
}

# stop_slice SLICE: stop a systemd slice whose processes have ended, with all slices and scopes in it.
stop_slice() {
  timeout 15 systemctl stop "$1" 2>/dev/null || :
  remove_cgroups "$1"
}

# unmount_all REGEX: unmount all file systems whose mount points match the extended regular expression REGEX, in the reverse order
# of their mounts.
unmount_all() {
  local points point begun=$SECONDS
  while
    points=()
    while read -r _ _ _ _ point _; do
      printf -v point %b "${point//\\/\\0}" # spaces are written as \040, and %b needs \0040
      [[ ! $point =~ $1 ]] || points=("$point" "${points[@]}")
    done </proc/self/mountinfo
    [ ${#points[@]} -gt 0 ]
  do
    if [ $((SECONDS - begun)) -gt 5 ]; then
      report_failure "these file systems cannot be unmounted: ${points[*]}; end the processes that use them"
      return
    fi
    umount -- "${points[@]}" 2>/dev/null || sleep 0.1
  done
}

# delete_interface NAME...: delete network interfaces. If an interface is a bridge, also delete the interfaces that are its ports.
delete_interface() {
  local name port
  for name; do
    [ -e "/sys/class/net/$name" ] || continue
    for port in "/sys/class/net/$name/brif"/*; do
      [ ! -e "$port" ] || ip link delete "${port##*/}" 2>/dev/null || :
    done
    ip link delete "$name" || [ ! -e "/sys/class/net/$name" ] || report_failure "the interface $name cannot be deleted"
  done
}

# delete_network_namespaces PATTERN...: delete the named network namespaces that match, with their network interfaces.
delete_network_namespaces() {
  local pattern file
  for pattern; do
    for file in /run/netns/$pattern; do # without quotes, so that bash expands the pattern
      [ -e "$file" ] || continue
      ip netns delete "${file##*/}" || report_failure "the network namespace ${file##*/} cannot be deleted"
    done
  done
}

# delete_routes NETWORK: delete the IPv4 routes to a network, and to networks in it.
delete_routes() {
  ip -4 route flush root "$1" || report_failure "routes to $1 cannot be deleted"
}

# delete_firewall_rules CHAINS COMMENTS: delete the iptables chains whose names match the extended regular expression CHAINS, and
# the rules that jump to these chains. Also delete the rules whose comment matches COMMENTS. Other rules stay untouched, because
# the firewall of the system may change at the same time.
delete_firewall_rules() {
  local program changes begun=$SECONDS
  for program in iptables ip6tables; do
    while
      changes=$("$program-save" 2>/dev/null | firewall_changes "$1" "$2")
      [ -n "$changes" ]
    do
      if [ $((SECONDS - begun)) -gt 10 ]; then
        report_failure "$program cannot delete these rules: $changes"
        break
      fi
      # iptables-restore fails if another program has changed a rule since the rules were read; then try again.
      "$program-restore" --noflush --wait <<<"$changes" || sleep 0.2
    done
  done
}

# firewall_changes CHAINS COMMENTS: read the output of iptables-save on stdin, and print the input for iptables-restore that
# deletes the chains and rules of delete_firewall_rules.
firewall_changes() {
  local line bare chain table='' rules='' flushed='' deleted='' quoted='"([^"\\]|\\.)*"'
  while read -r line; do
    chain=${line#* }
    chain=${chain%% *}
    case $line in
    '*'*) table=${line#\*} rules='' flushed='' deleted='' ;;
    :*)
      chain=${line#:}
      chain=${chain%% *}
      [[ ! $chain =~ ^($1) ]] || flushed+="-F $chain"$'\n' deleted+="-X $chain"$'\n'
      ;;
    -A*)
      [[ ! $chain =~ ^($1) ]] || continue # the chain is deleted with all its rules
      bare=$line # the rule without comments and log prefixes, which may contain any text
      while [[ $bare =~ $quoted ]]; do bare=${bare/"${BASH_REMATCH[0]}"/}; done
      if [[ $bare =~ \ -[jg]\ ($1) || $line =~ \ --comment\ \"?($2) ]]; then
        rules+="-D${line#-A}"$'\n'
      fi
      ;;
    COMMIT) [ -z "$rules$deleted" ] || printf '*%s\n%s%s%sCOMMIT\n' "$table" "$rules" "$flushed" "$deleted" ;;
    esac
  done
}
