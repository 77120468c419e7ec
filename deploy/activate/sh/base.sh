# shellcheck shell=bash disable=SC2034,SC2100,SC2209
# SC2034 is disabled because load and save use variables by the names in $names. SC2100 and SC2209 are disabled because
# they report assignments of a unit's name or an action's name as arithmetic or a command.
#
# This script is the part of package activate that runs on the node, as root. The script needs bash,
# coreutils, util-linux, systemd and Nix. Values are passed as arguments. The script waits with bash's
# own means and starts few programs, because a node may be small and a switch may take minutes.
#
#   inspect PATH SPEC MODE  prints the state of the node; changes nothing
#   dry PATH SPEC           prints what a switch would do; changes nothing
#   start RUN GOAL …        starts a run and follows it
#   follow RUN LINES        follows a run that was started earlier
#   confirm RUN LINES       first confirmation: the client can log in after the switch
#   confirm-again RUN LINES second confirmation: the run may be made permanent
#   confirm-return RUN LINES the client can log in after the rollback
#   abort RUN LINES         rolls back now
#   forget RUN              closes the record of a run that a reboot ended
#   reboot                  reboots the node after this command has ended
#
# systemd calls the command `supervise`, which executes the run, or rolls back a run that was killed. If the systemd unit is stopped,
# the process of the run executes the command `recover`.
set -u
umask 022
LC_ALL=C # not exported: it is only for this script's own handling of text
PATH=/run/current-system/sw/bin:/nix/var/nix/profiles/default/bin:/run/wrappers/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH

live=/run/nixbench/activate       # until the next boot: script, state, log
kept=/var/lib/nixbench/activate   # survives a reboot: a copy of the state, and the list of deployed systems
roots=/nix/var/nix/gcroots/nixbench
profile=/nix/var/nix/profiles/system
current=/run/current-system
booted=/run/booted-system
bootId=/proc/sys/kernel/random/boot_id
keysAside=/run/keys/.nixbench-before # backup of replaced keys, see package secrets
keyList=/var/lib/nixbench/keys       # list of the uploaded keys, see package secrets
transientUnits=/run/systemd/transient
invocations=/run/systemd/units    # has a link for each unit that runs, with the ID of its last start
lists=/run/nixos                  # lists of systemd units that switch-to-configuration still has to start
runUnit=nixbench-activate.service
# nixos-rebuild runs the switch in this systemd unit.
rebuildUnit=nixos-rebuild-switch-to-configuration.service

die() { printf '%s\n' "$*" >&2; exit 1; }
resolve() { [ ! -e "$1" ] || readlink -e "$1"; }

# now sets $now to the seconds since boot, and $up to the same with two decimals: ${up/./} is the number of hundredths. The wall
# clock may jump during a switch.
now() { read -r up _ </proc/uptime; now=${up%.*}; }

# pause waits for SECONDS, which may be a fraction, or until another shell calls `wake`. It reads from the pipe of `listen`, or
# from a pipe into which nothing is written.
pause() { # SECONDS
  [ -n "${bell:-}" ] || exec {bell}<> <(:)
  read -r -t "$1" -u "$bell" _ || :
}

# listen opens a named pipe, so that `wake` with the same NAME in another shell ends a pause of this shell. The run listens as
# `run`, and a shell that follows the run listens as `follower`.
listen() { # NAME
  [ -p "$live/$1.bell" ] || mkfifo -m 0600 "$live/$1.bell" 2>/dev/null || return 0
  exec {bell}<>"$live/$1.bell"
}
wake() { [ ! -p "$live/$1.bell" ] || echo 1<>"$live/$1.bell"; } # NAME

# askSystemd sets $answer to the output of systemctl, and returns the exit status of systemctl. It waits for at most 10 seconds for
# the first character, because systemd may be busy for long; systemctl itself waits for at most 25 seconds for each further answer of
# systemd. With -N and without -t, bash reads many bytes at a time.
askSystemd() {
  local output first=''
  exec {output}< <(exec systemctl "$@" 2>/dev/null)
  IFS= read -r -N 1 -t 10 -u "$output" first
  if [ $? -gt 128 ]; then kill -KILL $!; fi # the time is over; at the end of the output, read returns 1
  IFS= read -r -N 100000000 -u "$output" answer
  answer=$first$answer
  exec {output}<&-
  wait $!
}

# splitLines sets the array $lines to the lines of TEXT that are not empty, and splitFields sets $fields to the words of a line.
# `read` is slower: it reads one byte at a time from a pipe, and a here-string may need a file in /tmp, which may be full.
splitLines() { local IFS=$'\n'; splitFields "$1"; lines=("${fields[@]}"); } # TEXT
# shellcheck disable=SC2206
splitFields() { set -f; fields=($1); set +f; } # LINE

# isActive reports whether a systemd unit runs. If systemd does not answer, the unit is assumed to run.
isActive() {
  askSystemd show --property ActiveState --value "$1" || return 0
  case ${answer%$'\n'} in active | activating | deactivating | reloading) return 0 ;; esac
  return 1
}

# isTransientActive reports whether a transient systemd unit is active. systemd keeps a file for each transient unit while it
# is loaded, so systemd is asked only if this file exists.
isTransientActive() { [ -e "$transientUnits/$1" ] && isActive "$1"; }

# --- The state of a run is stored in a file. save adds a record at the end, and load reads the last complete record. A
# record begins with an empty line, has one name=value per line, and ends with the line saved=yes. A write that is
# interrupted leaves the record before it. ---

names='run goal path spec to from was wasPath armed settle checks activator generation phase deadline outcome reason code broken users still jobs failedBefore boot client restored time'
clear() { for name in $names; do printf -v "$name" ''; done; }

load() { # FILE
  local lines line records='' complete before
  clear
  [ -r "$1" ] || return
  IFS= read -r -d '' records <"$1"
  records=$'\n\n'$records
  complete=${records%$'\n'saved=yes$'\n'*}
  [ "$complete" != "$records" ] || return
  before=${complete%$'\n\n'*}
  splitLines "${complete:${#before}}"
  for line in "${lines[@]}"; do
    name=${line%%=*}
    case " $names " in *" $name "*) printf -v "$name" %s "${line#*=}" ;; esac
  done
}

show() { for name in $names; do printf '%s%s=%s\n' "${1:-}" "$name" "${!name}"; done; } # [PREFIX]

# save writes the state of the run to a file in memory. It also writes a copy to the disk, which survives a reboot, in the phases
# that matter after a reboot. At the end of a run the copy is replaced by a new file, so that the file does not grow and the file
# system writes it to the disk soon.
saves=0
save() {
  local record=$'\n' change=addTo
  printf -v time '%(%s)T' -1
  for name in $names; do record+="$name=${!name}"$'\n'; done
  record+=$'saved=yes\n'
  saves=$((saves + 1))
  [ $((saves % 60)) != 0 ] || change=replace
  $change "$live/state" "$record" || return
  wake follower
  case $phase in
  # At the beginning of a run, write a new file: it needs a block of the disk, so that a full disk is found before anything is
  # changed. At the end of the run, this file is replaced.
  starting) printf %s "$record" >"$kept/state.new" && addTo "$kept/state" "$record" ;;
  committing | rolling-back) addTo "$kept/state" "$record" ;;
  'done') replace "$kept/state" "$record" ;;
  esac
}

addTo() { printf %s "$2" >>"$1"; }                      # FILE TEXT
replace() { printf %s "$2" >"$1.new" && mv "$1.new" "$1"; } # FILE TEXT
