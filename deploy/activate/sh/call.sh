# shellcheck shell=sh
# One call of switch-to-configuration, and what to think of it.

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
    ${NIXOS_NO_CHECK:+--setenv=NIXOS_NO_CHECK="$NIXOS_NO_CHECK"} \
    /bin/sh "$live/script" perform "$@" </dev/null >>"$live/log" 2>&1 || return 0
  now
  begun=$now moved=$now mark='' beat=0
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

# judge reports whether switch-to-configuration did its work: $code is 0, or 4 and no
# unit failed that did not fail before.
judge() {
  case $activator:$code in
  nixos-rebuild:0 | nixos-rebuild:hung | nixos-rebuild:killed | nixos-rebuild:aborted) ;;
  # It has its own exit statuses.
  nixos-rebuild:*) if grep -q '^warning: the following units failed' "$live/log"; then code=4; fi ;;
  esac
  case $code in
  0) ;;
  4) findBroken ;;
  *) return 1 ;;
  esac
}

# judgeLater reports whether a unit has failed, or does not stay up, since judge was
# called. Units that the switch does not decide about are left out.
judgeLater() {
  findBroken && return 0
  late=''
  for name in $broken; do
    case " $told $unstable " in
    *" $name "*) late="$late$name " ;;
    *) isUnrelated "$name" || late="$late$name " ;;
    esac
  done
  broken=$late
  [ -z "$broken" ]
}

# findBroken sets $broken to the units that are in trouble now and were not before the
# switch, and $still to those that were. It fails if there are broken ones, and keeps the end of their logs.
findBroken() {
  all=$(failed)
  # A unit that fails over and over may just run now; the switch has seen it fail.
  told=$(sed -n 's/^warning: the following units failed: //p' "$live/log" | tail -n 1 | tr -d ,)
  for name in $told $unstable; do
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

# perform is inside the unit. The log is a file, so that whoever follows it
# needs no journal; the journal has it too.
perform() {
  { "$@" </dev/null 2>&1; echo $? >"$live/exit.new"; mv "$live/exit.new" "$live/exit"; } | tee -a "$live/log"
}
