# shellcheck shell=bash disable=SC2154,SC2034
# Functions that all other parts use.

say() { printf 'lab: %s\n' "$*" >&2; }
die() { say "$@"; exit 1; }
usage_error() { say "$@"; say "try: lab help"; exit 2; }

# set_lab_dir sets the folder of the lab's state, and the name of its cgroups, by which the
# lab can be found when its state is lost.
set_lab_dir() {
  [[ $name =~ ^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$ ]] || usage_error "not a lab name: $name"
  lab_dir=${NIXBENCH_LAB:-/tmp/nixbench-lab/$name}
  lab_dir=$(readlink -m -- "$lab_dir")
  lab_id=nixbench-lab-$(printf %s "$lab_dir" | sha256sum | cut -c1-12)
  # libvirt's socket is below, and a unix socket's path has 107 bytes at most.
  [ ${#lab_dir} -le 80 ] || die "the path of the lab's folder is too long for unix sockets: $lab_dir"
  case $lab_dir/ in
    / | /etc/* | /run/* | /proc/* | /sys/* | /dev/* | /var/lib/* | /var/log/* | /var/cache/*)
      die "the lab's folder cannot be $lab_dir: libvirtd sees another folder there" ;;
  esac
}

# is_lab_dir succeeds if the folder is empty or absent, or a lab made it. No other folder is
# ever removed.
is_lab_dir() {
  [ -e "$lab_dir/.nixbench-lab" ] || [ -z "$(ls -A "$lab_dir" 2>/dev/null)" ]
}

# lock_lab lets only one up or down of a lab run at a time. The lock is on the folder itself,
# which down removes, so a process that waited checks whether the folder is still the same.
# Processes that keep running must close descriptor 9, see close_descriptors.
lock_lab() {
  local deadline=$((SECONDS + 180))
  is_lab_dir || die "$lab_dir is not empty and no lab made it"
  while [ $SECONDS -lt $deadline ]; do
    (umask 077 && mkdir -p "$lab_dir")
    { exec 9< "$lab_dir"; } 2>/dev/null || continue
    flock -w $((deadline - SECONDS)) 9 || break
    if [ "$(stat -c %i "$lab_dir" 2>/dev/null)" = "$(stat -L -c %i /proc/self/fd/9)" ]; then
      [ -O "$lab_dir" ] || die "$lab_dir belongs to another user"
      : > "$lab_dir/.nixbench-lab"
      return
    fi
  done
  die "another command has held the lab in $lab_dir for three minutes"
}

# close_descriptors closes all descriptors but those of the standard streams and descriptor 7. A process that keeps running would
# otherwise hold the lock of this script, and the locks and pipes of its callers.
close_descriptors() {
  local fd
  for fd in "/proc/$BASHPID/fd/"*; do
    fd=${fd##*/}
    case $fd in 0 | 1 | 2 | 7 | 255) ;; *) exec {fd}>&- ;; esac # bash reads this script from 255, and closes it itself
  done
}

# start_time prints when a process started, which distinguishes it from a later process with
# the same number. It fails for a zombie.
start_time() {
  local stat
  stat=$(cat "/proc/$1/stat" 2>/dev/null) || return
  # The name in parentheses may contain anything: count from behind it.
  read -r -a stat <<< "${stat##*) }"
  [ "${stat[0]}" != Z ] && echo "${stat[19]}"
}

# world_pid prints the number of the process that holds the lab's namespaces, and fails if it
# does not run.
world_pid() {
  local pid started
  read -r pid started 2>/dev/null < "$lab_dir/world.pid" || return
  [ -n "$started" ] && [ "$(start_time "$pid")" = "$started" ] || return
  echo "$pid"
}

# log_tail prints the ends of log files, for an error message.
log_tail() {
  local file
  for file in "$@"; do
    [ -s "$file" ] || continue
    say "the end of $file:"
    tail -n 15 "$file" | sed 's/^/  | /' >&2
  done
}
