#!@shell@
# switch-to-configuration: make this system the running one, the boot default, or
# both. Same actions, lists, lines and exit codes as NixOS' program.
#
#   0 done                               4 a unit or the activation of a user failed
#   1 usage, check, boot loader, systemd 11 another switch is running
#   2 activation script failed           100 needs a reboot
#
# Few programs are started: budgets of nixbench are measured with this script.
set -u
out='@out@'
distroId='@distroId@' installBootLoader='@installBootLoader@'
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
LC_ALL=C

say() { printf '%s\n' "$*" >&2; }
die() {
  say "${@:2}"
  exit "$1"
}

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

# Sets REPLY to the units in the order in which NixOS lists them, with commas.
list() { # UNIT...
  local sorted=() unit i
  for unit; do
    i=${#sorted[@]}
    while [ "$i" -gt 0 ] && [[ ${sorted[i - 1],,} > ${unit,,} ]]; do
      sorted[i]=${sorted[i - 1]}
      i=$((i - 1))
    done
    sorted[i]=$unit
  done
  printf -v REPLY '%s, ' "${sorted[@]}"
  REPLY=${REPLY%, }
}
show() { # MESSAGE UNIT...: nothing without units
  [ $# -gt 1 ] || return 0
  list "${@:2}"
  say "$1: $REPLY"
}
# Sets $loud to the units of `start` that are reported.
findLoud() {
  local unit
  loud=()
  for unit in "${!start[@]}"; do
    [ -n "${silent[$unit]:-}" ] || loud+=("$unit")
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

isTrue() { # VALUES DEFAULT: the last value decides
  local value=${1%$'\n'}
  [ -n "$value" ] || value=$2
  case ${value##*$'\n'} in 1 | yes | true | on) return 0 ;; esac
  return 1
}

isIgnored() { # a key of [Unit] that does not matter for a running unit
  case $1 in
  'Unit|X-Reload-Triggers' | 'Unit|Description' | 'Unit|Documentation' | 'Unit|OnFailure' | 'Unit|OnSuccess' | \
    'Unit|OnFailureJobMode' | 'Unit|IgnoreOnIsolate' | 'Unit|StopWhenUnneeded' | \
    'Unit|RefuseManualStart' | 'Unit|RefuseManualStop' | 'Unit|AllowIsolate' | \
    'Unit|CollectMode' | 'Unit|SourcePath') return 0 ;;
  esac
  return 1
}

# Sets REPLY to equal, reload or restart: the action that the difference between two units requires.
difference() { # OLD-ARRAY NEW-ARRAY
  local -n a=$1 b=$2
  local key verdict=equal
  for key in "${!a[@]}"; do
    [ "${a[$key]}" != "${b[$key]-unset}" ] || continue
    case $key:${b[$key]+set} in
    # The running process is not affected, and the new unit cannot be reloaded.
    'Install|'* | 'Service|ExecReload:') ;;
    'Unit|X-Reload-Triggers:set' | 'Service|ExecReload:set' | 'Mount|Options:set') verdict=reload ;;
    *)
      isIgnored "$key" && continue
      REPLY=restart
      return
      ;;
    esac
  done
  for key in "${!b[@]}"; do
    [ -z "${a[$key]+set}" ] || continue
    case $key in
    'Install|'*) ;;
    'Unit|X-Reload-Triggers' | 'Service|ExecReload') verdict=reload ;;
    *)
      isIgnored "$key" && continue
      REPLY=restart
      return
      ;;
    esac
  done
  REPLY=$verdict
}

# --- the running units ---

# Sets $active to the state of each unit that is not inactive.
declare -A active=()
findActive() {
  local line fields
  active=()
  listUnits
  for line in "${lines[@]}"; do
    fields=($line)
    [ "${fields[2]}" = inactive ] || active[${fields[0]}]=${fields[2]}
  done
  set +f
}
# Sets $lines to the loaded units, and switches globs off. `read` would read one byte at a time from a pipe.
listUnits() {
  local IFS=$'\n'
  set -f
  lines=($("${systemctl[@]}" list-units --full --plain --no-legend --no-pager 2>/dev/null))
}

isUp() { [ "${active[$1]:-}" = active ] || [ "${active[$1]:-}" = activating ]; }
baseOf() { # DIRECTORY UNIT: sets REPLY to the file, or that of the template
  REPLY=$1/$2
  [ -e "$REPLY" ] || [ -d "$REPLY.d" ] || [[ $2 != *@?*.* ]] || REPLY=$1/${2%%@*}@.${2##*.}
}
# A drop-in of the system counts, too: systems change the guest's own units by drop-ins.
isThere() { [ -e "$1" ] || [ -d "$1.d" ]; }

# Units of Debian or its administrator in the same directory are not the system's. Units of a
# user who has a file of the same name are not, either.
isOurs() { # FILE UNIT
  if [ "$scope" = user ]; then
    [ ! -e ~/".config/systemd/user/$2" ]
    return
  fi
  local static=/etc/static/systemd/system/${1##*/}
  [ "$1" -ef "$static" ] || [ "$1.d/overrides.conf" -ef "$static.d/overrides.conf" ]
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
  sysinit.target | basic.target | multi-user.target | graphical.target | *.slice | *.path)
    # systemd's reload applies their properties.
    ;;
  -.mount | nix.mount) reloadUnit "$unit" ;;
  *.mount) restartUnit "$unit" ;;
  *.socket)
    # A socket cannot be restarted while its service runs; it is restarted with the service.
    ;;
  *)
    if isTrue "${new['Service|X-ReloadIfChanged']-}" no && [ -z "${restart[$unit]:-}${stop[$unit]:-}" ]; then
      reloadUnit "$unit"
    elif ! isTrue "${new['Service|X-RestartIfChanged']-}" yes ||
      isTrue "${new['Unit|RefuseManualStop']-}" no || isTrue "${new['Unit|X-OnlyManualStart']-}" no; then
      skip[$unit]=1
    elif ! isTrue "${new['Service|X-StopIfChanged']-}" yes || [[ $unit != *.service ]]; then
      restartUnit "$unit"
    else
      # A service with a socket starts at the next connection.
      sockets=${unit%.service}
      sockets=${new['Service|Sockets']:-${sockets%%@*}.socket}
      for socket in $sockets; do
        if [ -n "${active[$socket]:-}" ]; then
          stop[$socket]=1
          unset 'restart[$socket]'
          ! isThere "$newUnits/$socket" || startUnit "$socket"
        fi
        ! isThere "$newUnits/$socket" || activated=1
      done
      if [ -z "$activated" ] || isTrue "${new['Service|X-NotSocketActivated']-}" no; then
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

# Fills the sets with the units that differ between $oldUnits and $newUnits.
collectChanges() {
  local unit oldFile newFile key
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
        case $unit in
        suspend.target | hibernate.target | hybrid-sleep.target) ;;
        *)
          if ! isTrue "${new['Unit|RefuseManualStart']-}" no && ! isTrue "${new['Unit|X-OnlyManualStart']-}" no; then
            startUnit "$unit"
            silent[$unit]=1
          fi
          ;;
        esac
        ! isTrue "${new['Unit|X-StopOnReconfiguration']-}" no || stop[$unit]=1
        continue
      fi
    fi

    declare -A old=() new=()
    if ! isThere "$oldFile" || ! isOurs "$oldFile" "$unit"; then
      # One of the guest's own units, to which the system now adds a drop-in: the settings are
      # new, but the way to apply them is the unit's.
      [ ! -e "$newFile" ] && isThere "$newFile" || continue
      parse "$newFile" new
      for key in X-RestartIfChanged X-ReloadIfChanged X-StopIfChanged; do
        [ -z "${new["Service|$key"]+set}" ] || old["Service|$key"]=${new["Service|$key"]}
      done
      follow "$unit"
      continue
    fi
    if ! isThere "$newFile" || [ "$newFile" -ef /dev/null ]; then
      # Without the drop-in the guest's own unit has its original settings again.
      [ -e "$oldFile" ] || continue
      parse "$oldFile" old
      ! isTrue "${old['Unit|X-StopOnRemoval']-}" yes || stop[$unit]=1
      continue
    fi
    parse "$oldFile" old
    parse "$newFile" new
    follow "$unit"
  done
}

# --- systemd's jobs ---

complaints=() # to report when all jobs are done, as NixOS does
failedUnits=()

# Runs a job for each unit, and waits for all of them. A job that was cancelled is no failure.
run() { # VERB UNIT...
  local line unit text
  [ $# -gt 1 ] || return 0
  text=$("${systemctl[@]}" "$1" -- "${@:2}" 2>&1 9>&-) && return
  while IFS= read -r line; do
    case $line in
    'Job for '*' failed'* | 'Job for '*' timed out.' | 'A dependency job for '*)
      unit=${line#*ob for }
      unit=${unit%% *}
      complaints+=("Failed to $1 $unitKind$unit")
      failedUnits+=("$unit")
      code=4
      ;;
    "Failed to stop "*) ;; # NixOS ignores a unit that is gone already
    "Failed to $1 "*)
      line=${line#"Failed to $1 "}
      say "Failed to $1 $unitKind$line"
      code=4
      ;;
    esac
  done <<<"$text"
}

perform() { # VERB UNIT...: and forgets the set
  run "$@"
  [ ! -s "$state/$1-list" ] || : >"$state/$1-list"
}

reportJobs() { [ ${#complaints[@]} = 0 ] || printf '%s\n' "${complaints[@]}" >&2; }

# --- users ---

# The units of a user who is logged in. /etc is already the new system's.
switchUser() {
  action=$NIXOS_ACTION scope=user unitKind='user unit ' systemctl=(systemctl --user) code=0
  state=$XDG_RUNTIME_DIR/nixos oldUnits=$OLD_TOPLEVEL/etc/systemd/user newUnits=$out/etc/systemd/user
  [ -d "$state" ] || mkdir -m 0700 "$state"
  recall start
  recall restart
  recall reload
  findActive
  collectChanges
  unset 'skip[nixos-activation.service]'
  show "stopping the following user units" "${!stop[@]}"
  run stop "${!stop[@]}"
  show "NOT restarting the following user units" "${!skip[@]}"
  # The manager reads all units when it executes itself.
  "${systemctl[@]}" daemon-reexec
  "${systemctl[@]}" reset-failed
  show "reloading the following user units" "${!reload[@]}"
  perform reload "${!reload[@]}"
  show "restarting the following user units" "${!restart[@]}"
  perform restart "${!restart[@]}"
  findLoud
  show "starting the following user units" "${loud[@]}"
  perform start "${!start[@]}"
  if [ -e "$newUnits/nixos-activation.service" ]; then
    say "restarting the following user units: nixos-activation.service"
    # NixOS waits for the end and does not look at the result.
    "${systemctl[@]}" restart nixos-activation.service || :
  fi
  reportJobs
  if [ ${#failedUnits[@]} -gt 0 ]; then
    show "warning: the following user units failed" "${failedUnits[@]}"
    say "See \`systemctl --user status ${failedUnits[*]}\` for details."
  fi
  exit "$code"
}
if [ -n "${__NIXOS_SWITCH_TO_CONFIGURATION_PARENT_EXE:-}" ]; then switchUser; fi

# The users of systemd-logind. Without units of users in both systems their managers are left alone.
switchUsers() { # OLD-SYSTEM
  local file uid key value name runtime gid
  [ -d "$1/etc/systemd/user" ] || [ -d "$out/etc/systemd/user" ] || return 0
  for file in /run/systemd/users/*; do
    [ -f "$file" ] || continue
    uid=${file##*/} name='' runtime=/run/user/${file##*/} gid=''
    while IFS='=' read -r key value; do
      case $key in NAME) name=$value ;; RUNTIME) runtime=$value ;; esac
    done <"$file"
    while IFS=: read -r _ _ value key _; do
      [ "$value" != "$uid" ] || gid=$key
    done </etc/passwd
    [ -n "$gid" ] || continue
    say "reloading user units for $name..."
    setpriv --reuid="$uid" --regid="$gid" --clear-groups env -i XDG_RUNTIME_DIR="$runtime" \
      __NIXOS_SWITCH_TO_CONFIGURATION_PARENT_EXE="$0" OLD_TOPLEVEL="$1" NIXOS_ACTION="$action" "$0" user 9>&- || {
      say "warning: user activation for $name failed"
      code=4
    }
  done
}

# --- what is asked for ---

action=${1:-}
case $# in
1) ;;
*) action= ;;
esac
case $action in
check | switch | boot | test | dry-activate) ;;
*)
  die 1 "Usage: ${0##*/} check | switch | boot | test | dry-activate
switch and boot make this system the boot default; switch and test make it the
running one; dry-activate says what test would do; check asks whether it may."
  ;;
esac
export NIXOS_ACTION=$action

[ "$EUID" = 0 ] || die 1 "${0##*/} needs to be root"
[ -e /etc/NIXOS ] || grep -Eqx "ID=\"?$distroId\"?" /etc/os-release 2>/dev/null ||
  die 1 "This is not a NixOS installation!"

# Units that an interrupted switch had still to start or restart; the next switch does it.
state=/run/nixos
[ -d "$state" ] || mkdir -m 0755 "$state"
exec 9>>"$state/switch-to-configuration.lock"
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

# A guest that has never run a system has none to compare with.
if [ -e /run/current-system ]; then
  current='' wanted=''
  [ ! -r /run/current-system/init-interface-version ] || read -r current </run/current-system/init-interface-version
  [ -r "$out/init-interface-version" ] || die 1 "Error: File init-interface-version should exist"
  read -r wanted <"$out/init-interface-version"
  [ "$current" = "$wanted" ] ||
    die 100 "Warning: only a reboot makes this configuration the running one: its init
differs too much from the one that runs."
fi

# From here on a lost connection must not interrupt the switch.
trap '' HUP PIPE

scope=system unitKind='' systemctl=(systemctl)
oldUnits=/etc/systemd/system newUnits=$out/etc/systemd/system
oldSystem=/run/current-system
if [ -d "$oldSystem/etc/systemd/user" ]; then oldSystem=$(readlink -e "$oldSystem"); fi
recall start
recall restart
recall reload
findActive
collectChanges

# --- dry activation ---

if [ "$action" = dry-activate ]; then
  findLoud
  show "would stop the following units" "${!stop[@]}"
  show "would NOT stop the following changed units" "${!skip[@]}"
  say "would activate the configuration..."
  "$out/dry-activate" "$out"
  show "would reload the following units" "${!reload[@]}"
  show "would restart the following units" "${!restart[@]}"
  show "would start the following units" "${loud[@]}"
  exit 0
fi

# --- activation ---

code=0
show "stopping the following units" "${!stop[@]}"
run stop "${!stop[@]}"
show "NOT restarting the following changed units" "${!skip[@]}"

say "activating the configuration..."
activated=0
"$out/activate" "$out" 9>&- || {
  say "Failed to run activate script"
  activated=2
}
[ "$code" != 0 ] || code=$activated

# Activation snippets can request restarts of units, too.
for set in restart reload; do
  [ -f "$state/activation-$set-list" ] || continue
  while IFS= read -r unit; do
    if [ -z "${active[$unit]:-}" ]; then
      [ $set = reload ] || startUnit "$unit"
      continue
    fi
    case $set in
    reload) reloadUnit "$unit" ;;
    restart)
      baseOf "$newUnits" "$unit"
      declare -A new=()
      parse "$REPLY" new
      new['Service|X-StopIfChanged']=no # restart, since nothing is stopped any more
      changed "$unit"
      ;;
    esac
  done <"$state/activation-$set-list"
  rm -f "$state/activation-$set-list"
done

# NixOS calls it at each switch. It has an effect if a unit has failed before, or while the units above were stopped.
needsReset=${#stop[@]}
for unit in "${!active[@]}"; do [ "${active[$unit]}" != failed ] || needsReset=1; done
[ "$needsReset" = 0 ] || systemctl reset-failed 9>&- || die 1 "Error: Failed to reset failed units"
systemctl daemon-reload 9>&- || die 1 "Error: systemd daemon reload failed"

switchUsers "$oldSystem"

# Restarts what is ordered before sysinit.target, such as systemd-tmpfiles-resetup.service.
say "restarting sysinit-reactivation.target"
run restart sysinit-reactivation.target
unset 'start[sysinit-reactivation.target]' # the restart has started its dependencies

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
findLoud
show "starting the following units" "${loud[@]}"
perform start "${!start[@]}"
reportJobs

# --- result ---

fresh=() failed=()
listUnits
for line in "${lines[@]}"; do
  fields=($line)
  unit=${fields[0]}
  case ${fields[2]}:${fields[3]} in
  failed:*)
    failed+=("$unit")
    continue
    ;;
  inactive:*) continue ;;
  *:auto-restart | *:auto-restart-queued)
    # The service has ended and waits for its restart. If it succeeded, it counts as running.
    if [ "$(systemctl show --property ExecMainStatus --value -- "$unit")" != 0 ]; then
      failed+=("$unit")
      continue
    fi
    ;;
  esac
  # Scopes are made by programs, not by the system.
  [ -n "${active[$unit]:-}" ] || [[ $unit == *.scope ]] || fresh+=("$unit")
done

show "the following new units were started" "${fresh[@]}"

if [ ${#failed[@]} -gt 0 ]; then
  show "warning: the following units failed" "${failed[@]}"
  systemctl status --no-pager --full -- "${failed[@]}" >&2 || :
  code=4
fi
exit "$code"
