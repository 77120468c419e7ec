# shellcheck shell=bash
# Commands that the client calls to start, follow and confirm a run.

start() { # RUN GOAL PATH SPEC ARMED ACTIVATOR GENERATION WATCH OBSERVED CHECKS
  local last='' limit
  # With an unknown option, nixos-rebuild prints its options and does nothing. --help would show a manual page, which may not be
  # installed.
  [ "$6" != nixos-rebuild ] || case $(timeout 20 nixos-rebuild --nixbench-asks-for-options 2>&1 </dev/null) in
  *--no-reexec*--store-path* | *--store-path*--no-reexec*) ;;
  *) die "the node has no nixos-rebuild with --store-path: deploy without --activator nixos-rebuild" ;;
  esac
  if [ ! -d "$live" ] || [ ! -d "$kept" ] || [ ! -d "$roots" ]; then
    { mkdir -p "$kept" "$roots" "$live" && chmod 0700 "$live"; } || die "cannot write the record of the switch"
  fi
  exec 9>"$live/lock"
  flock -w 10 9 || exit 75
  if load $live/state || load $kept/state; then last=$run'|'$phase; fi
  # Wait for a moment: if a run has just ended, its systemd unit may still be active.
  now
  limit=$((now + 10))
  while isTransientActive $runUnit; do
    now
    [ "$phase" = 'done' ] && [ "$now" -lt "$limit" ] || exit 75
    pause 0.05
  done
  clear
  run=$1 goal=$2 path=$3 spec=$4 armed=$5 activator=$6 generation=$7 settle=$8 checks=${10:-0}
  findClient
  to=$path${spec:+/specialisation/$spec}
  was=${9:-}
  was=${was#*|*|} was=${was%%|*} # the generation that the client has observed
  # Find this shell's file now: after the switch, $current may contain another bash.
  { cd -P "${BASH%/*}" && shell=$PWD/${BASH##*/}; } 2>/dev/null || die "cannot find the folder of $BASH"
  resolveFolders "$to" $current $profile "$profile-$was-link" || die "a system was removed while the switch was prepared"
  to=${target[$to]-} from=${target[$current]-} wasPath=${target[$profile]-}
  # Any generation with the current system will do. So look for its number only if the generation that the client knows has
  # another system.
  if [ -z "$wasPath" ] || [ "${target["$profile-$was-link"]-}" != "$wasPath" ]; then readGeneration; fi
  # Protect the system from the garbage collector. The garbage collector keeps the current folder of each process, and the paths
  # in each process's environment. First this shell protects the system so, later the process of the run does.
  cd "$path" 2>/dev/null || { [ -z "${9:-}" ] && die "$path is not on this node"; exit 76; }
  if [ -n "${9:-}" ]; then
    [ "$9" = "$from|$wasPath|${was:-0}|${last:-|}" ] && [ -x "$to/bin/switch-to-configuration" ] || exit 76
  fi
  # Store this script in a file for the systemd unit of the run. The shell that executes the script has its text in the variable
  # `script`. No earlier run still reads the old file: this shell holds the lock, and the systemd unit of the earlier run has
  # ended.
  printf %s "${script:?}" >"$live/script" || die "cannot store the script of the run"
  read -r boot <$bootId
  phase=starting
  now
  deadline=$((now + ${armed:-0}))
  # Make the files of the previous run ineffective: answers that came too late, the result of its switch, and the logs of its
  # systemd units.
  for name in confirm confirm-again confirm-return abort watch; do
    [ ! -e "$live/$name" ] || echo "of an earlier run" >"$live/$name" || die "cannot remove the answer to the previous run"
  done
  [ ! -e "$live/units" ] || rm -rf "${live:?}/units"
  # dropKeyBackup has marked this backup of keys for deletion, but nixbench was killed before it deleted the backup. Delete it
  # now.
  [ ! -e $keysAside/settled ] || rm -rf $keysAside
  if ! { : >"$live/log" && : >"$live/state" && save; }; then
    rm -f "$live/state" "$kept/state.new"
    die "cannot write the record of the switch in $kept"
  fi
  [ -z "$from" ] || [ "$from" = "$to" ] || [ "$roots/previous" -ef "$from" ] || ln -sfn "$from" "$roots/previous"
  : >"$live/seen"
  # The systemd unit of the run is transient, so that a switch does not stop it. OOMScoreAdjust protects the run from the OOM
  # killer. If the run is killed, Restart starts it again for the rollback. If its systemd unit is stopped, TimeoutStopSec gives the
  # run time to roll back.
  systemd-run --quiet --collect --no-ask-password --unit="$runUnit" --service-type=exec \
    --description="nixbench: $goal, run $run" \
    --property=OOMScoreAdjust=-900 --property=TimeoutStopSec=15min --property=KillMode=mixed \
    --property=Restart=on-failure --property=RestartSec=100ms --property=StartLimitIntervalSec=0 \
    ${LOCALE_ARCHIVE:+--setenv=LOCALE_ARCHIVE="$LOCALE_ARCHIVE"} --setenv=NIXOS_INSTALL_BOOTLOADER=0 --setenv=NIXBENCH_SYSTEM="$path" \
    "$shell" "$live/script" supervise </dev/null || { phase='done' outcome=failed reason=unstarted; save; die "systemd did not start the switch"; }
  exec 9>&-
  cd /
  follow "$run" 0
}

# follow prints the log of a run, without the first LINES lines, until the run has ended or waits for a confirmation. ANSWERED is
# the last confirmation that the client has sent already. Then follow prints the record of the run. If the run has ended, follow
# also prints the state of the node. The last line is `end=yes`: without it, the connection was interrupted and the output is
# incomplete.
follow() { # RUN LINES [ANSWERED]
  local until=' waiting confirmed returned ' skip=$2 beat='' running checked text loaded=''
  case ${3:-} in
  confirm) until=' confirmed returned ' ;;
  confirm-again | abort) until=' returned ' ;;
  confirm-return) until=' ' ;;
  esac
  listen follower
  now
  checked=$now
  while :; do
    text=''
    IFS= read -r -d '' text 2>/dev/null <$live/state || :
    if [ -z "$text" ] || [ "$text" != "$loaded" ]; then
      load $live/state || load $kept/state || die "there was no run"
      [ "$text" = "$loaded" ] || checked=$now
      loaded=$text
    fi
    [ "$run" = "$1" ] || die "run $1 was not started, or run $run has replaced it"
    running=yes
    case " done$until" in *" $phase "*) running=no ;; esac
    [ -n "${logFd:-}" ] || { [ ! -e $live/log ] || exec {logFd}<"$live/log"; }
    [ -z "${logFd:-}" ] || ! readNewLines printLogLine || checked=$now
    [ $running = yes ] || break
    now
    if [ "$now" != "$beat" ]; then
      beat=$now
      echo beat= || exit 1 # the client has disconnected
      printf '\n' 2>/dev/null >$live/seen
    fi
    # If neither the state nor the log of the run changes, the process of the run may have been killed.
    if [ $((now - checked)) -ge 4 ]; then
      checked=$now
      if ! isTransientActive $runUnit; then
        load $live/state || load $kept/state
        [ "$phase" = 'done' ] || break
        continue
      fi
    fi
    pause 0.2
  done
  [ -z "${partial-}" ] || printLogLine "$partial"
  for log in "$live"/units/*; do
    [ -f "$log" ] || continue
    while IFS= read -r line; do printf 'unit=%s %s\n' "${log##*/}" "$line"; done <"$log"
  done
  case $until in
  *" $phase "*) printBoot; printRun followed ;;
  *) inspect '' '' brief ;;
  esac
}

# openLog opens the log of the run. readNewLines then reads the lines that are added after this.
openLog() {
  [ -z "${logFd:-}" ] || exec {logFd}<&-
  partial=''
  exec {logFd}<"$live/log" && readNewLines :
}

# readNewLines calls FUNCTION with each complete line that was added to the log since the last call. It fails if no line was
# added. An incomplete line stays in $partial for the next call.
readNewLines() { # FUNCTION
  local line added=1
  while IFS= read -r -u "$logFd" line; do
    "$1" "${partial-}$line"
    partial='' added=0
  done
  partial=${partial-}$line
  return $added
}

# printLogLine prints a line of the log of the run. It leaves out the first $skip lines.
printLogLine() {
  if [ "$skip" -gt 0 ]; then
    skip=$((skip - 1))
  else
    printf 'log=%s\n' "$1"
  fi
}

# answer writes the client's confirmation of a run, or its request to roll back, as an empty file. Then it follows the run. Only
# the run decides whether the file was written in time, so that nixbench and the run never disagree.
answer() { # confirm|confirm-again|confirm-return|abort RUN LINES [watch]
  load $live/state || load $kept/state || die "there is no run to $1"
  [ "$run" = "$2" ] || die "run $2 was replaced by run $run"
  [ -z "${4:-}" ] || : >"$live/watch"
  [ ! -d "$live" ] || : >"$live/$1" # the node may have rebooted
  wake run
  case $phase in rolling-back | 'done') ;; *) echo accepted=yes ;; esac # the run has not failed before this login
  follow "$2" "$3" "$1"
}

# isAnswered reports whether a client has answered this run: the file of the answer exists and is empty. A file with text is not
# an answer to this run: when a run starts, it writes a text into the files of answers to earlier runs.
isAnswered() { [ -e "$live/$1" ] && [ ! -s "$live/$1" ]; } # confirm|confirm-again|confirm-return|abort|watch

# forget marks the record of a run as done, if a reboot has ended the run.
forget() { # RUN
  load $kept/state && [ "$run" = "$1" ] && [ "$phase" != 'done' ] || return 0
  ! isTransientActive $runUnit || return 0
  mkdir -p "$live" && chmod 700 "$live"
  reason=rebooted
  finishRun failed
}
