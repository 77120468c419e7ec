#!@shell@
# switch-to-configuration: make this system the running one, the boot default, or
# both. Same actions, lists, lines and exit codes as NixOS' program.
#
#   0 done                        4 a unit failed
#   1 usage, check, boot loader  11 another switch is running
#   2 activation script failed  100 needs a reboot
#   3 systemd did not reload
set -u
out='@out@'
distroId='@distroId@' installBootLoader='@installBootLoader@'
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
# Units that an interrupted switch had still to start or restart; the next switch does it.
state=/run/nixos
oldUnits=/etc/systemd/system newUnits=$out/etc/systemd/system

say() { printf '%s\n' "$*" >&2; }
die() {
  say "${@:2}"
  exit "$1"
}

action=${1:-}
case $#:$action in
1:check | 1:switch | 1:boot | 1:test | 1:dry-activate) ;;
*)
  die 1 "Usage: ${0##*/} check | switch | boot | test | dry-activate
switch and boot make this system the boot default; switch and test make it the
running one; dry-activate says what test would do; check asks whether it may."
  ;;
esac
export NIXOS_ACTION=$action

[ "$(id -u)" = 0 ] || die 1 "${0##*/} needs to be root"
[ -e /etc/NIXOS ] || grep -Eqx "ID=\"?$distroId\"?" /etc/os-release 2>/dev/null ||
  die 1 "This is not a NixOS installation!"

mkdir -p -m 0755 "$state"
exec 9>"$state/switch-to-configuration.lock"
flock --nonblock 9 || die 11 "Could not acquire lock"

if [ "${NIXOS_NO_CHECK:-}" != 1 ]; then
  "$out/pre-switch-checks" "$out" "$action" 9>&- || die 1 "Pre-switch checks failed"
fi
[ "$action" != check ] || exit 0

if [ "$action" = switch ] || [ "$action" = boot ]; then
  "$installBootLoader" "$out" 9>&- || die 1 "Failed to install bootloader"
fi
[ "${NIXOS_NO_SYNC:-}" = 1 ] || sync -f /nix/store
[ "$action" != boot ] || exit 0

current=$(cat /run/current-system/init-interface-version 2>/dev/null)
if [ -n "$current" ] && [ "$current" != "$(cat "$out/init-interface-version")" ]; then
  die 100 "Warning: only a reboot makes this configuration the running one: its init
differs too much from the one that runs."
fi

# From here on a lost connection must not interrupt the switch.
trap '' HUP PIPE

# --- sets of units ---

declare -A stop=() skip=() start=() restart=() reload=() silent=()

# Each set is also a file, so that the next switch can finish an interrupted one.
remember() { # SET UNIT
  [ "$action" = dry-activate ] || printf '%s\n' "$2" >>"$state/$1-list"
}
recall() { # SET
  local -n set=$1
  local unit
  [ -f "$state/$1-list" ] || return 0
  while IFS= read -r unit; do
    [ -z "$unit" ] || set[$unit]=1
  done <"$state/$1-list"
}
recall start
recall restart
recall reload

show() { # MESSAGE UNIT...: nothing without units
  local message=$1 names
  shift
  [ $# -gt 0 ] || return 0
  names=$(printf '%s\n' "$@" | LC_ALL=C sort)
  say "$message: ${names//$'\n'/, }"
}
loud() { # the units of `start` that are reported
  local unit
  for unit in "${!start[@]}"; do
    [ -n "${silent[$unit]:-}" ] || printf '%s\n' "$unit"
  done
}

# --- reading units ---

# "Section|Key" -> its values, in order; `Key=` alone empties the list, as for systemd.
parse() { # FILE ARRAY
  local -n into=$2
  local line more section='' key value file
  for file in "$1" "$1".d/*.conf; do
    [ -f "$file" ] || continue
    while IFS= read -r line || [ -n "$line" ]; do
      while [[ $line == *\\ ]] && IFS= read -r more; do line="${line%\\} $more"; done
      case $line in
      '' | '#'* | ';'*) ;;
      '['*)
        section=${line#[}
        section=${section%]}
        ;;
      *=*)
        key=$section\|${line%%=*}
        value=${line#*=}
        if [ -z "$value" ]; then into[$key]=; else into[$key]+=$value$'\n'; fi
        ;;
      esac
    done <"$file"
  done
}

isTrue() { case ${1%$'\n'} in 1 | yes | true | on) return 0 ;; esac; return 1; }
isFalse() { case ${1%$'\n'} in 0 | no | false | off) return 0 ;; esac; return 1; }

# Sets REPLY to equal, reload or restart: the action that the difference between two units requires.
difference() { # OLD-ARRAY NEW-ARRAY
  local -n a=$1 b=$2
  local key verdict=equal
  for key in "${!a[@]}" "${!b[@]}"; do
    [ "${a[$key]-}" != "${b[$key]-}" ] || continue
    case $key in
    'Install|'*) ;;
    'Unit|'Description | 'Unit|'Documentation | 'Unit|'OnFailure | 'Unit|'OnSuccess | \
      'Unit|'OnFailureJobMode | 'Unit|'IgnoreOnIsolate | 'Unit|'StopWhenUnneeded | \
      'Unit|'RefuseManualStart | 'Unit|'RefuseManualStop | 'Unit|'AllowIsolate | \
      'Unit|'CollectMode | 'Unit|'SourcePath) ;;
    'Unit|X-Reload-Triggers' | 'Mount|Options') verdict=reload ;;
    *)
      REPLY=restart
      return
      ;;
    esac
  done
  REPLY=$verdict
}

# --- the running units ---

declare -A active=()
while read -r unit _ activeState _; do
  active[$unit]=$activeState
done < <(systemctl list-units --all --full --plain --no-legend --no-pager 2>/dev/null)

isUp() { [ "${active[$1]:-}" = active ] || [ "${active[$1]:-}" = activating ]; }
baseOf() { # DIRECTORY UNIT: sets REPLY to the file, or that of the template
  local file=$1/$2 stem
  if [ ! -e "$file" ] && [ ! -d "$file.d" ] && [[ $2 == *@?*.* ]]; then
    stem=${2%%@*}
    file=$1/$stem@.${2##*.}
  fi
  REPLY=$file
}
# A drop-in of the system counts, too: systems change the guest's own units by drop-ins.
isThere() { [ -e "$1" ] || [ -d "$1.d" ]; }
isMasked() { [ -e "$1" ] && [ "$(readlink -f "$1")" = /dev/null ]; }

# Units of Debian or its administrator in the same directory are not the system's.
isOurs() { # FILE UNIT
  local file
  for file in "$1" "$1".d/overrides.conf; do
    case $(readlink "$file") in /etc/static/* | /nix/store/*) return 0 ;; esac
  done
  return 1
}

restartUnit() {
  restart[$1]=1
  remember restart "$1"
  # A restart includes what a reload would do.
  unset 'reload[$1]'
}
reloadUnit() {
  [ -z "${restart[$1]:-}${stop[$1]:-}" ] || return 0
  reload[$1]=1
  remember reload "$1"
}
startUnit() {
  start[$1]=1
  remember start "$1"
}

changed() { # UNIT, its new settings in $new
  local unit=$1 socket sockets activated=''
  case $unit in
  sysinit.target | basic.target | multi-user.target | graphical.target | *.unit | *.slice | *.path)
    # systemd's reload applies their properties.
    ;;
  -.mount | nix.mount | nix-store.mount) reloadUnit "$unit" ;;
  *.mount) restartUnit "$unit" ;;
  *.socket)
    # A socket cannot be restarted while its service runs; it is restarted with the service.
    ;;
  *)
    if isTrue "${new['Service|X-ReloadIfChanged']-}" && [ -z "${restart[$unit]:-}${stop[$unit]:-}" ]; then
      reloadUnit "$unit"
    elif isFalse "${new['Service|X-RestartIfChanged']-}" ||
      isTrue "${new['Unit|RefuseManualStop']-}" || isTrue "${new['Unit|X-OnlyManualStart']-}"; then
      skip[$unit]=1
    elif isFalse "${new['Service|X-StopIfChanged']-}" || [[ $unit != *.service ]]; then
      restartUnit "$unit"
    else
      # A service with a socket starts at the next connection.
      sockets=${new['Service|Sockets']-}
      for socket in ${sockets:-"${unit%.service}.socket"}; do
        isUp "$socket" || continue
        stop[$socket]=1
        unset 'restart[$socket]'
        if isThere "$newUnits/$socket"; then
          startUnit "$socket"
          activated=1
        fi
      done
      if [ -z "$activated" ] || isTrue "${new['Service|X-NotSocketActivated']-}"; then
        startUnit "$unit"
      fi
      stop[$unit]=1
      unset 'reload[$unit]'
    fi
    ;;
  esac
}

follow() { # UNIT, its settings in $old and $new
  difference old new
  case $REPLY in
  restart) changed "$1" ;;
  reload) reloadUnit "$1" ;;
  esac
}

for unit in "${!active[@]}"; do
  isUp "$unit" || continue
  baseOf "$oldUnits" "$unit"
  oldFile=$REPLY
  baseOf "$newUnits" "$unit"
  newFile=$REPLY

  if [[ $unit == *.target ]]; then
    # Targets keep running; starting them again starts their new dependencies.
    if isThere "$newFile" || [ -d "$newUnits/$unit.wants" ] || [ -d "$newUnits/$unit.requires" ] || [ -d "$newUnits/$unit.upholds" ]; then
      declare -A new=()
      parse "$newFile" new
      case $unit in suspend.target | hibernate.target | hybrid-sleep.target | suspend-then-hibernate.target) continue ;; esac
      if ! isTrue "${new['Unit|RefuseManualStart']-}" && ! isTrue "${new['Unit|X-OnlyManualStart']-}"; then
        startUnit "$unit"
        silent[$unit]=1
      fi
      ! isTrue "${new['Unit|X-StopOnReconfiguration']-}" || stop[$unit]=1
      continue
    fi
  fi

  declare -A old=() new=()
  if ! isThere "$oldFile" || ! isOurs "$oldFile"; then
    # One of the guest's own units, to which the system now adds a drop-in: the settings are
    # new, but the way to apply them is the unit's.
    [ ! -e "$newFile" ] && isThere "$newFile" || continue
    parse "$newFile" new
    for key in X-RestartIfChanged X-ReloadIfChanged X-StopIfChanged; do
      old["Service|$key"]=${new["Service|$key"]-}
    done
    follow "$unit"
    continue
  fi
  if ! isThere "$newFile" || isMasked "$newFile"; then
    # Without the drop-in the guest's own unit has its original settings again.
    [ -e "$oldFile" ] || continue
    parse "$oldFile" old
    isFalse "${old['Unit|X-StopOnRemoval']-}" || stop[$unit]=1
    continue
  fi
  parse "$oldFile" old
  parse "$newFile" new
  follow "$unit"
done

# --- dry activation ---

if [ "$action" = dry-activate ]; then
  mapfile -t loudStart < <(loud)
  show "would stop the following units" "${!stop[@]}"
  show "would NOT stop the following changed units" "${!skip[@]}"
  say "would activate the configuration..."
  "$out/dry-activate" "$out"
  show "would reload the following units" "${!reload[@]}"
  show "would restart the following units" "${!restart[@]}"
  show "would start the following units" "${loudStart[@]}"
  exit 0
fi

# --- activation ---

code=0
logger -t nixos "switching to system configuration $out" 2>/dev/null || :

if [ ${#stop[@]} -gt 0 ]; then
  show "stopping the following units" "${!stop[@]}"
  # A unit that does not stop is reported as failed below.
  systemctl stop -- "${!stop[@]}" 9>&- || :
fi
show "NOT restarting the following changed units" "${!skip[@]}"

say "activating the configuration..."
"$out/activate" "$out" 9>&- || {
  say "Failed to run activate script"
  code=2
}

# Activation snippets can request restarts of units, too.
for set in restart reload; do
  [ -f "$state/activation-$set-list" ] || continue
  while IFS= read -r unit; do
    case $set in
    reload) reloadUnit "$unit" ;;
    restart)
      baseOf "$newUnits" "$unit"
      ! isUp "$unit" || ! isThere "$REPLY" || restartUnit "$unit"
      ;;
    esac
  done <"$state/activation-$set-list"
  rm -f "$state/activation-$set-list"
done

systemctl reset-failed || :
systemctl daemon-reload || code=3
systemd-tmpfiles --create --remove --exclude-prefix=/dev || :

perform() { # VERB UNIT...
  [ $# -lt 2 ] || systemctl "$1" -- "${@:2}" || code=4
  rm -f "$state/$1-list"
}

# Units that have stopped in the meantime get their configuration when they start.
for unit in "${!reload[@]}"; do
  systemctl is-active --quiet -- "$unit" && continue
  unset 'reload[$unit]'
  startUnit "$unit"
done
show "reloading the following units" "${!reload[@]}"
perform reload "${!reload[@]}"
show "restarting the following units" "${!restart[@]}"
perform restart "${!restart[@]}"
mapfile -t loudStart < <(loud)
show "starting the following units" "${loudStart[@]}"
perform start "${!start[@]}"

# Starting an active target does not start its new dependencies. Those that have not run
# since the boot, and whose conditions did not prevent it, are started now.
wanted=() missing=()
for target in "${!silent[@]}"; do
  for file in "$newUnits/$target".wants/*; do
    [ -L "$file" ] && wanted+=("${file##*/}")
  done
done
if [ ${#wanted[@]} -gt 0 ]; then
  while read -r unit; do missing+=("$unit"); done < <(
    systemctl show -p Id -p ActiveState -p ConditionTimestampMonotonic -- "${wanted[@]}" 2>/dev/null |
      awk -F= 'function flush() { if (id != "" && state == "inactive" && when == 0) print id; id = "" }
        $0 == "" { flush() } $1 == "Id" { id = $2 } $1 == "ActiveState" { state = $2 }
        $1 == "ConditionTimestampMonotonic" { when = $2 } END { flush() }'
  )
fi
[ ${#missing[@]} = 0 ] || systemctl start -- "${missing[@]}" || code=4

# --- result ---

fresh=() failed=()
while read -r unit _ activeState subState _; do
  case $activeState:$subState in
  failed:*) failed+=("$unit") ;;
  activating:auto-restart | activating:auto-restart-queued)
    # The service has ended and waits for its restart. If it succeeded, it counts as running.
    if [ "$(systemctl show --property ExecMainStatus --value -- "$unit")" != 0 ]; then
      failed+=("$unit")
    elif ! isUp "$unit"; then
      fresh+=("$unit")
    fi
    ;;
  # Scopes are made by programs, not by the system.
  active:* | activating:*) isUp "$unit" || [[ $unit == *.scope ]] || fresh+=("$unit") ;;
  esac
done < <(systemctl list-units --all --full --plain --no-legend --no-pager 2>/dev/null)

show "the following new units were started" "${fresh[@]}"

if [ ${#failed[@]} -gt 0 ]; then
  show "warning: the following units failed" "${failed[@]}"
  systemctl status --no-pager --full -- "${failed[@]}" >&2 || :
  code=4
fi

logger -t nixos "switched to system configuration $out: status $code" 2>/dev/null || :
exit "$code"
