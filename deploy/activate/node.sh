# node.sh: the half of package activate that runs on the node, as root. Plain sh
# with coreutils, util-linux, systemd and Nix; values arrive as arguments.
#
#   inspect PATH SPEC WITH  what the node says of itself; changes nothing
#   dry PATH SPEC           what a switch would do; changes nothing
#   start RUN GOAL …        starts a run and follows it
#   follow RUN LINES        follows a run that was started before
#   confirm RUN LINES       we can still get in: the run may be made permanent
#   abort RUN LINES         go back now
#   forget RUN              a reboot cut the run off: that was its end
#   reboot                  reboots, once this command has ended
#
# The rest is called by systemd: `supervise` is the run itself, `perform` one call
# of switch-to-configuration, `recover` what happens if the run is killed.
set -u
umask 022
PATH=/run/current-system/sw/bin:/nix/var/nix/profiles/default/bin:/run/wrappers/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH

live=/run/nixbench/activate       # of this boot: script, state, log
kept=/var/lib/nixbench/activate   # the state once more, and what was deployed
roots=/nix/var/nix/gcroots/nixbench
profile=/nix/var/nix/profiles/system
current=/run/current-system
booted=/run/booted-system
bootId=/proc/sys/kernel/random/boot_id
lists=/run/nixos                  # what switch-to-configuration still wanted to do
runUnit=nixbench-activate.service
switchUnit=nixbench-switch.service
# nixos-rebuild puts its switch into a unit of its own.
rebuildUnit=nixos-rebuild-switch-to-configuration.service

die() { printf '%s\n' "$*" >&2; exit 1; }
resolve() { readlink -e "$1" 2>/dev/null || :; }

# The wall clock may jump during a switch, seconds since the boot do not.
now() { read -r up _ </proc/uptime; now=${up%.*}; }

# Whether a unit runs. Who cannot ask assumes that it does.
alive() {
  active=$(timeout 10 systemctl show --property ActiveState --value "$1" 2>/dev/null) || return 0
  case $active in active | activating | deactivating | reloading) return 0 ;; esac
  return 1
}

# --- the state of a run: one name=value per line ---

names='run goal path spec to from was wasPath armed activator generation phase deadline outcome reason code broken still jobs failedBefore boot time'
clear() { for name in $names; do eval "$name="; done; }

load() { # FILE
  clear
  [ -r "$1" ] || return 1
  while IFS='=' read -r name value; do
    case " $names " in *" $name "*) eval "$name=\$value" ;; esac
  done <"$1"
}

show() { for name in $names; do eval "printf '%s=%s\n' $name \"\$$name\""; done; }

save() {
  time=$(date +%s)
  show >"$live/state.new" && mv "$live/state.new" "$live/state" &&
    cp "$live/state" "$kept/state.new" && mv "$kept/state.new" "$kept/state"
}

# --- what the node says of itself ---

# Units that failed, also those that systemd is about to try again.
failed() {
  timeout 20 systemctl list-units --all --full --plain --no-legend --no-pager \
    --state=failed,auto-restart,auto-restart-queued 2>/dev/null |
    while read -r name _; do
      case $name in "$runUnit" | "$switchUnit") ;; *) printf '%s ' "$name" ;; esac
    done
}

kernel() { # NAME SYSTEM: what only a reboot changes
  [ -e "$2" ] || return 0
  params=
  [ ! -r "$2/kernel-params" ] || read -r params <"$2/kernel-params" || :
  printf '%s=%s %s %s %s\n' "$1" "$(resolve "$2/kernel")" "$(resolve "$2/initrd")" "$(resolve "$2/kernel-modules")" "$params"
}

inspect() { # PATH SPEC ACTIVATOR
  nixos=no
  if [ -e /etc/NIXOS ] || grep -q '^ID="\?nixos"\?$' /etc/os-release 2>/dev/null; then nixos=yes; fi
  echo "nixos=$nixos"
  echo "current=$(resolve $current)"
  echo "booted=$(resolve $booted)"
  echo "profile=$(resolve $profile)"
  echo "link=$(readlink $profile 2>/dev/null)"
  for link in "$profile"-*-link; do
    [ -L "$link" ] || continue
    version=
    [ ! -r "$link/nixos-version" ] || read -r version <"$link/nixos-version" || :
    echo "generation=$(stat -c '%n %Y' "$link") $(resolve "$link") $version"
  done
  echo "failed=$(failed)"
  echo "system=$(timeout 20 systemctl is-system-running 2>/dev/null)"
  echo "boot-id=$(cat $bootId)"
  read -r up _ </proc/uptime
  echo "uptime=${up%.*}"
  kernel kernel-booted $booted
  kernel kernel-current $current
  kernel kernel-profile $profile
  [ ! -r $kept/deployed ] || while read -r deployed _; do echo "deployed=$deployed"; done <$kept/deployed
  echo "previous=$(resolve $roots/previous)"
  if [ "$3" = nixos-rebuild ]; then
    case $(MANPAGER=cat PAGER=cat timeout 20 nixos-rebuild --help 2>/dev/null </dev/null) in
    *--store-path*) echo "store-path=yes" ;;
    esac
  fi
  if [ -n "$1" ]; then
    system=$1${2:+/specialisation/$2}
    [ -x "$system/bin/switch-to-configuration" ] && echo "wanted=$(resolve "$system")"
    kernel kernel-wanted "$system"
    [ -d "$1/specialisation" ] && for name in "$1"/specialisation/*; do
      [ -e "$name" ] && echo "specialisation=${name##*/}"
    done
  fi
  if load $kept/state; then
    show | while IFS= read -r line; do printf 'run-%s\n' "$line"; done
    if alive $runUnit; then
      echo "run-alive=yes"
      now
      echo "run-left=$((${deadline:-$now} - now))"
      # Whoever follows a run says so every second.
      seen=$(stat -c %Y $live/seen 2>/dev/null) && echo "run-seen=$(($(date +%s) - seen))"
    fi
  fi
  echo end=yes
}

# --- the client's commands ---

start() { # RUN GOAL PATH SPEC ARMED ACTIVATOR GENERATION INSTALL
  clear
  mkdir -p "$kept" "$roots" || die "cannot keep a record of the switch"
  exec 9>"$live/lock"
  flock -w 10 9 || { rm -f "$0"; exit 75; }
  if alive $runUnit; then
    rm -f "$0"
    exit 75
  fi
  mv "$0" "$live/script" || die "cannot keep the script of the run"
  run=$1 goal=$2 path=$3 spec=$4 armed=$5 activator=$6 generation=$7
  to=$(resolve "$path${spec:+/specialisation/$spec}")
  from=$(resolve $current)
  was=$(readlink $profile 2>/dev/null)
  was=${was#system-} was=${was%-link}
  wasPath=$(resolve $profile)
  boot=$(cat $bootId) phase=starting
  now
  deadline=$((now + ${armed:-0}))
  rm -rf "$live/confirm" "$live/abort" "$live/exit" "$live/log" "$live/units"
  mkdir -p "$live/units"
  : >"$live/log" && save || die "cannot keep a record of the switch in $kept"
  ln -sfn "$path" "$roots/next" || die "cannot keep $path from the garbage collector"
  [ -z "$from" ] || [ "$from" = "$to" ] || ln -sfn "$from" "$roots/previous"
  touch "$live/seen"
  # The run is no part of any configuration: a switch leaves it alone. Nor may
  # the system's want of memory end it, nor a stop leave things half-way.
  systemd-run --quiet --collect --no-ask-password --unit="$runUnit" --service-type=exec \
    --description="nixbench: $goal, run $run" \
    --property=OOMScoreAdjust=-900 --property=TimeoutStopSec=15min --property=KillMode=mixed \
    --property="ExecStopPost=/bin/sh $live/script recover" \
    --property=Restart=on-failure --property=RestartSec=1s --property=StartLimitIntervalSec=0 \
    ${LOCALE_ARCHIVE:+--setenv=LOCALE_ARCHIVE="$LOCALE_ARCHIVE"} --setenv=NIXOS_INSTALL_BOOTLOADER="$8" \
    /bin/sh "$live/script" supervise </dev/null || { phase='done' outcome=failed reason=unstarted; save; die "systemd did not start the switch"; }
  exec 9>&-
  follow "$run" 0
}

# follow prints the log from a line on, and the state once the run waits for us or
# has ended. Its last line is `end=yes`: without it the connection was cut.
follow() { # RUN LINES [over]
  until=${3:-waiting} lines=$2 beat=0
  while :; do
    load $live/state || load $kept/state || die "there was no run"
    [ "$run" = "$1" ] || die "run $1 was followed by run $run"
    running=yes
    case $phase in
    'done') running=no ;;
    waiting) [ "$until" = over ] || running=no ;;
    esac
    have=$(wc -l <$live/log 2>/dev/null) || have=0
    if [ "$have" -gt "$lines" ]; then
      sed -n "$((lines + 1)),${have}s/^/log=/p" $live/log
      lines=$have
    fi
    [ $running = yes ] || break
    if [ $((beat % 20)) = 0 ]; then
      echo beat=
      touch $live/seen 2>/dev/null
      if [ "$beat" -gt 0 ] && ! alive $runUnit; then
        load $live/state || load $kept/state
        [ "$phase" = 'done' ] || break
        continue
      fi
    fi
    beat=$((beat + 1))
    sleep 0.05
  done
  for log in "$live"/units/*; do
    [ -f "$log" ] || continue
    while IFS= read -r line; do printf 'unit=%s %s\n' "${log##*/}" "$line"; done <"$log"
  done
  inspect '' '' ''
}

# answer lets the run go on. It alone decides, so that an answer that comes as
# the time is up cannot be half obeyed.
answer() { # confirm|abort RUN LINES
  load $live/state || die "there is no run to $1"
  [ "$run" = "$2" ] || die "run $2 was followed by run $run"
  : >"$live/$1"
  follow "$2" "$3" over
}

# forget closes the record of a run that a reboot cut off.
forget() { # RUN
  load $kept/state && [ "$run" = "$1" ] && [ "$phase" != 'done' ] || return 0
  ! alive $runUnit || return 0
  mkdir -p "$live" && chmod 700 "$live"
  reason=rebooted
  finish failed
}

# --- the run ---

stopSwitch() {
  for name in $switchUnit $rebuildUnit; do
    alive "$name" || continue
    timeout 20 systemctl kill --signal=KILL "$name" 2>/dev/null
    timeout 20 systemctl stop "$name" 2>/dev/null
  done
  # Stopping comes back when the processes are gone: the lock is free.
}

queued() { timeout 10 systemctl list-jobs --full --plain --no-legend --no-pager 2>/dev/null; }

# call runs a command in a unit of its own and sets $code to its exit status;
# or to `hung` if for PATIENCE seconds neither its log nor systemd's jobs moved,
# `killed` if it vanished, `aborted` if we are told to go back. PATIENCE 0 waits.
call() { # PATIENCE COMMAND…
  patience=$1
  shift
  rm -f "$live/exit"
  code=killed
  systemd-run --quiet --collect --no-ask-password --unit=$switchUnit --service-type=exec \
    --description="nixbench: $goal, run $run" --property=TimeoutStopSec=10s \
    ${LOCALE_ARCHIVE:+--setenv=LOCALE_ARCHIVE="$LOCALE_ARCHIVE"} --setenv=NIXOS_INSTALL_BOOTLOADER="${NIXOS_INSTALL_BOOTLOADER:-0}" \
    --setenv=NIXOS_NO_CHECK="${NIXOS_NO_CHECK:-0}" \
    /bin/sh "$live/script" perform "$@" </dev/null >>"$live/log" 2>&1 || return 0
  now
  begun=$now moved=$now mark= beat=0
  while ! [ -e "$live/exit" ]; do
    if [ -e "$live/abort" ] && [ "$phase" = switching ]; then
      code=aborted
      stopSwitch
      return
    fi
    beat=$((beat + 1))
    if [ $((beat % 20)) = 0 ]; then
      alive $switchUnit || [ -e "$live/exit" ] || return 0
      queue=$(queued)
      new=$(wc -c <"$live/log")$queue
      now
      if [ "$new" != "$mark" ]; then
        mark=$new moved=$now
        deadline=$((now + patience))
        [ "$patience" = 0 ] || save || :
      fi
      # Something that talks for ever is not progress either.
      if [ "$patience" != 0 ] && { [ $((now - moved)) -ge "$patience" ] || [ $((now - begun)) -ge $((patience * 10 + 600)) ]; }; then
        code=hung
        stopSwitch
        return
      fi
    fi
    sleep 0.05
  done
  read -r code <"$live/exit"
  # The last lines are on their way; then, what the command left behind ends with
  # its unit, as it would in any other.
  for _ in 1 2 3 4 5 6 7 8 9 10; do
    alive $switchUnit || return 0
    sleep 0.05
  done
  stopSwitch
}

without() { # UNITS MINUS: those of the first that the second has not
  for name in $1; do
    case " $2 " in *" $name "*) ;; *) printf '%s ' "$name" ;; esac
  done
}

# judge says whether the node is as it should be: $code is 0, or 4 and no unit
# failed that did not fail before.
judge() {
  case $activator:$code in
  nixos-rebuild:0 | nixos-rebuild:hung | nixos-rebuild:killed | nixos-rebuild:aborted) ;;
  # It has its own exit statuses.
  nixos-rebuild:*) if grep -q '^warning: the following units failed' "$live/log"; then code=4; fi ;;
  esac
  case $code in
  0) return 0 ;;
  4) ;;
  *) return 1 ;;
  esac
  all=$(failed)
  # A unit that fails over and over may just run now; the switch has seen it fail.
  told=$(sed -n 's/^warning: the following units failed: //p' "$live/log" | tail -n 1)
  for name in $(printf %s "$told" | tr -d ,); do
    case " $all " in *" $name "*) ;; *) all="$all$name " ;; esac
  done
  broken=$(without "$all" "$failedBefore")
  still=$(without "$all" "$broken")
  [ -n "$broken" ] || return 0
  timeout 20 journalctl --sync 2>/dev/null
  for name in $broken; do
    timeout 20 journalctl --boot --since="@$begunAt" --unit="$name" --lines=10 --output=cat --no-pager >"$live/units/$name" 2>/dev/null
  done
  return 1
}

activation() { # ACTION: the command that activates the new system
  if [ "$activator" = nixos-rebuild ]; then
    call "$armed" nixos-rebuild "$1" --store-path "$path" ${spec:+--specialisation "$spec"}
  else
    call "$armed" "$to/bin/switch-to-configuration" "$1"
  fi
}

advance() { # the profile, to an explicit generation
  if [ -n "$generation" ]; then
    nix-env --profile $profile --switch-generation "$generation" >>"$live/log" 2>&1
  elif [ "$wasPath" != "$path" ]; then
    nix-env --profile $profile --set "$path" >>"$live/log" 2>&1
  fi
}

retreat() { # the profile and the boot loader
  [ -n "$was" ] || return 0
  [ "$(resolve $profile)" != "$wasPath" ] || return 0
  bad=$(readlink $profile)
  nix-env --profile $profile --switch-generation "$was" >>"$live/log" 2>&1
  # Nor shall the boot menu offer it.
  bad=${bad#system-} bad=${bad%-link}
  [ -n "$generation" ] || nix-env --profile $profile --delete-generations "$bad" >>"$live/log" 2>&1
  NIXOS_NO_CHECK=1 call 600 "$wasPath/bin/switch-to-configuration" boot
}

# commit makes the new system permanent. Its base is the boot default even where a
# specialisation runs: boot loaders know generations.
commit() {
  phase=committing why=$code
  save || :
  if ! advance; then
    reason=profile
  elif [ "$activator" = nixos-rebuild ]; then
    call 600 nixos-rebuild boot --store-path "$path"
    [ "$code" = 0 ] || reason=boot
  else
    call 600 "$path/bin/switch-to-configuration" boot
    [ "$code" = 0 ] || reason=boot
  fi
  if [ -z "$reason" ]; then
    code=${why:-$code}
    return 0
  fi
  why=$code
  retreat
  code=$why
  return 1
}

# A switch that was killed leaves lists of units that it was about to start. The
# next one takes them up, but not all of them exist in the old system.
tidy() {
  for list in "$lists"/start-list "$lists"/restart-list "$lists"/reload-list; do
    [ -s "$list" ] || continue
    while IFS= read -r name; do
      file=$from/etc/systemd/system/$name
      if [ -e "$file" ] || [ -e "${file%%@*}@.${name##*.}" ]; then printf '%s\n' "$name"; fi
    done <"$list" >"$list.new"
    mv "$list.new" "$list"
  done
}

# goBack makes the node run what it ran before. The boot default never changed.
goBack() { # REASON
  reason=$1
  if [ -z "$from" ]; then
    finish failed
    return
  fi
  phase=rolling-back
  now
  deadline=$((now + 600))
  save || :
  tidy
  why=$code
  echo "going back to $from" >>"$live/log"
  NIXOS_NO_CHECK=1 call 600 "$from/bin/switch-to-configuration" test
  back=$code code=$why
  if [ "$(resolve $current)" != "$from" ] || [ "$back" != 0 ] && [ "$back" != 4 ]; then
    reason="$reason, and going back ended with $back"
    finish rollback-failed
    return
  fi
  finish rolled-back
}

finish() { # OUTCOME
  outcome=$1 phase='done' deadline=
  if [ "$(resolve $profile)" = "$path" ] || [ "$(resolve $current)" = "$to" ]; then
    # Ours from now on, see replaceUnknownProfiles.
    { tail -n 198 "$kept/deployed" 2>/dev/null; printf '%s\n' "$path $run" "$to $run"; } | uniq >"$kept/deployed.new" &&
      mv "$kept/deployed.new" "$kept/deployed"
  fi
  rm -f "$roots/next" "$live/confirm" "$live/abort"
  save || :
}

supervise() {
  load $live/state || die "no state"
  if [ "$phase" != starting ]; then
    # Started again by systemd: the first one was killed, and so was its recovery.
    recover
    return
  fi
  armed=${armed:-0}
  begunAt=$(date +%s)
  failedBefore=$(failed)
  phase=switching
  save || die "cannot keep a record of the switch"

  if [ "$goal" = boot ]; then
    if commit; then finish boot; else finish failed; fi
    return
  fi
  # Armed, nothing permanent changes before we are confirmed, so that a reboot
  # always ends up in the old system. Else it is done as nixos-rebuild does it.
  action=test
  if [ "$armed" = 0 ] && [ "$goal" = switch ]; then
    action=switch
    if ! advance; then
      reason=profile
      finish failed
      return
    fi
  fi
  activation $action

  if ! judge; then
    case $code in
    11)
      reason=locked
      [ $action = test ] || { retreat; code=11; }
      finish failed
      ;;
    100)
      reason=reboot
      if [ "$goal" = test ]; then finish failed
      elif [ $action = switch ] || { reason=; commit; }; then reason=reboot; finish boot
      else finish failed; fi
      ;;
    hung)
      # Which units it was waiting for is all there is to know.
      jobs=$(printf '%s\n' "$queue" | while read -r _ name kind how; do
        [ "$how" != running ] || printf '%s %s, ' "$kind" "$name"
      done)
      goBack hung
      ;;
    *)
      if [ "$armed" = 0 ]; then reason=switch; finish failed; else goBack switch; fi
      ;;
    esac
    return
  fi
  if [ "$armed" != 0 ]; then
    phase=waiting
    now
    deadline=$((now + armed))
    save || :
    while ! [ -e "$live/confirm" ]; do
      if [ -e "$live/abort" ]; then
        goBack aborted
        return
      fi
      now
      if [ "$now" -ge "$deadline" ]; then
        goBack unconfirmed
        return
      fi
      sleep 0.05
    done
  fi
  if [ "$goal" = test ]; then
    finish activated
  elif [ $action = switch ] || commit; then
    finish committed
  else
    goBack "$reason"
  fi
}

# recover follows the run, however it ended. At a shutdown there is nothing to do:
# the boot default is still the old system.
recover() {
  load $live/state || return 0
  [ "$phase" != 'done' ] || return 0
  case $(timeout 10 systemctl is-system-running) in stopping) return 0 ;; esac
  stopSwitch
  code=killed
  if [ "${armed:-0}" = 0 ]; then reason=killed; finish failed; else retreat; goBack killed; fi
}

# perform is inside the unit. The log is a file, so that whoever follows it
# needs no journal; the journal has it too.
perform() {
  { "$@" </dev/null 2>&1; echo $? >"$live/exit.new"; mv "$live/exit.new" "$live/exit"; } | tee -a "$live/log"
}

dry() { # PATH SPEC
  "$1${2:+/specialisation/$2}/bin/switch-to-configuration" dry-activate </dev/null 2>&1
}

case $1 in
inspect | dry | start | follow | supervise | recover | perform | forget) "$@" ;;
confirm | abort) answer "$@" ;;
# The command ends before the connection does.
reboot) systemd-run --quiet --collect --no-ask-password --on-active=500ms --timer-property=AccuracySec=10ms systemctl reboot ;;
*) die "unknown command $1" ;;
esac
