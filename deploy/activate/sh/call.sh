# shellcheck shell=bash
# Functions that run switch-to-configuration and check the result.

# stopSwitch kills the processes of the switch, and returns when they have ended, so that they no longer hold a lock. In the
# systemd unit of this run, all processes except this shell belong to the switch. nixos-rebuild runs the switch in another systemd
# unit, which stopSwitch stops too.
stopSwitch() {
  for _ in {1..200}; do
    findSwitchProcesses
    [ ${#processes[@]} -gt 0 ] || break
    kill -KILL "${processes[@]}" 2>/dev/null
    pause 0.05
  done
  isTransientActive $rebuildUnit || return 0
  timeout 20 systemctl kill --signal=KILL $rebuildUnit 2>/dev/null
  timeout 20 systemctl stop $rebuildUnit 2>/dev/null
}

# findSwitchProcesses sets $processes to the processes in the control group of the run's systemd unit, without this shell.
# With cgroup v1, systemd has a hierarchy of its own. With v2, the line in /proc/PID/cgroup has no name.
findSwitchProcesses() {
  local name group file process members=()
  processes=()
  while IFS=: read -r _ name group; do
    case $name:$group in
    name=systemd:*/$runUnit) file=/sys/fs/cgroup/systemd$group/cgroup.procs ;;
    :*/$runUnit) file=/sys/fs/cgroup$group/cgroup.procs ;;
    *) continue ;;
    esac
    [ ! -r "$file" ] || mapfile -t members <"$file"
    for process in "${members[@]}"; do [ "$process" = $$ ] || processes+=("$process"); done
    [ ${#processes[@]} = 0 ] || return 0
  done </proc/self/cgroup
}

# askForJobs sets $answer to the list of systemd's jobs, one line for each. With --before, the line of a job is followed by lines
# with the jobs for which it waits.
askForJobs() { askSystemd list-jobs --full --plain --no-legend --no-pager "$@"; } # [--before]

# runSwitch runs a command of the switch, and sets $code to the exit status of the command. In three cases $code is a word.
# `hung`: neither the log nor systemd's jobs have changed for PATIENCE seconds. `killed`: the process that waits for the command
# has disappeared. `aborted`: the client (nixbench) requests a rollback. With PATIENCE 0, there is no time limit.
runSwitch() { # PATIENCE COMMAND…
  local patience=$1 begun moved beat mark='' report
  shift
  code=killed queue=''
  openLog
  exec {report}< <(perform "$@" 3>&1 >&2)
  now
  begun=$now moved=$now
  # Read only what is already in the pipe: a read with a time limit may lose what it has read when the time is over.
  until read -t 0 -u "$report"; do
    pause 0.5
    if isAnswered abort && [ "$phase" = switching ]; then
      code=aborted
      break
    fi
    beat=$now
    now
    [ "$now" != "$beat" ] || continue
    # Once a second.
    if readNewLines :; then
      moved=$now
    elif [ $((now - moved)) -gt 1 ]; then # the log is silent
      askForJobs
      queue=$answer
      [ "$queue" = "$mark" ] || moved=$now
      mark=$queue
    fi
    if [ "$moved" = "$now" ]; then
      deadline=$((now + patience))
      [ "$patience" = 0 ] || save || :
    fi
    # Give up after PATIENCE seconds without progress. Also give up after ten times PATIENCE plus ten minutes in total, since a
    # hanging command may print lines forever.
    if [ "$patience" != 0 ] && { [ $((now - moved)) -ge "$patience" ] || [ $((now - begun)) -ge $((patience * 10 + 600)) ]; }; then
      code=hung
      break
    fi
  done
  # If the pipe ends without an exit status, the process that waits for the command was killed.
  if [ $code != killed ] || ! read -r -u "$report" code; then
    code=${code:-killed}
    stopSwitch
  else
    # Wait for the last log lines of the command. Then kill the processes that the command has left, as systemd does when the main
    # process of a systemd unit ends.
    read -r -t 2 -u "$report" _ || stopSwitch
  fi
  exec {report}<&-
}

# perform runs a command. It prints the command's exit status on file descriptor 3, and prints a second line there when the log is
# complete. The output of the command goes to the journal, and also to a file, so that nixbench can follow the output without the
# journal.
perform() {
  # Undo the run's protection from the OOM killer for the switch, which is not more important than the node's services.
  echo 0 >/proc/self/oom_score_adj
  [ -z "${bell:-}" ] || exec {bell}>&-
  [ -z "${logFd:-}" ] || exec {logFd}<&-
  { "$@" </dev/null 2>&1 3>&-; echo $? >&3; wake run; } | tee -a "$live/log" 3>&-
  echo >&3
}

# subtractUnits sets $REPLY to the systemd units in the list UNITS that are not in the list MINUS.
subtractUnits() { # UNITS MINUS
  REPLY=''
  for name in $1; do
    case " $2 " in *" $name "*) ;; *) REPLY="$REPLY$name " ;; esac
  done
}

# readReport reads what the last switch-to-configuration has printed. $told are the systemd units that failed. $toldUsers are the
# users whose activation failed. $flaw is `lock` if another switch was running, `check` if a pre-switch check failed (before any
# change), or `script` if the activation script failed. $status is the exit status that nixos-rebuild reports.
readReport() {
  local line
  told='' toldUsers='' flaw='' status=''
  while IFS= read -r line; do
    case $line in
    'rolling back to /'*) told='' toldUsers='' flaw='' status='' ;;
    'Could not acquire lock') flaw=lock ;;
    'Pre-switch checks failed') flaw=check ;;
    'Failed to run activate script') flaw=script ;;
    'warning: user activation for '*' failed')
      line=${line#warning: user activation for }
      toldUsers="$toldUsers${line% failed} "
      ;;
    # Forget the systemd units that were reported before this line: they were started by the activation script, or belong to
    # users.
    'restarting sysinit-reactivation.target') told='' ;;
    'Failed to start '* | 'Failed to restart '* | 'Failed to reload '* | 'Failed to stop '*)
      line=${line#Failed to * }
      line=${line%% *}
      case $line in *.*) told="$told ${line%:}" ;; esac
      ;;
    'warning: the following units failed: '*) told="$told ${line#*failed: }" ;;
    'Command '*' returned non-zero exit status '*.)
      line=${line##*exit status }
      status=${line%.}
      ;;
    esac
  done <"$live/log"
  told=${told//,/}
}

# checkSwitch succeeds if the switch's exit status $code is 0. It also succeeds if $code is 4 (systemd units failed) and each
# reported unit had failed before the switch. switch-to-configuration also returns 4 in other cases: the activation script failed,
# the activation of a user failed, or a systemd unit could not be started but is not in the state failed.
checkSwitch() {
  readReport
  case $activator:$code in
  *:0) told='' ;;
  *:hung | *:killed | *:aborted) ;;
  nixos-rebuild:*) code=${status:-$code} ;; # some versions return 1 for each failure
  esac
  case $code:$flaw in
  0:*) ;;
  4:script)
    code=2
    return 1
    ;;
  4:*) findBroken && findBrokenUsers && [ -n "$told$toldUsers" ] ;;
  *) return 1 ;;
  esac
}

# findBrokenUsers sets $users to the users whose activation failed, and fails if there is one. It leaves out a user whose service
# manager (systemd --user) does not run: the switch cannot reach this manager, and nothing of the user runs in it.
findBrokenUsers() {
  local uid
  users=''
  for name in $toldUsers; do
    ! uid=$(id -u -- "$name" 2>/dev/null) || isActive "user@$uid.service" || continue
    users="$users$name "
  done
  [ -z "$users" ]
}

# checkUnitsAgain succeeds if no systemd unit has failed or restarted repeatedly since checkSwitch. It ignores systemd units that
# do not depend on the switch, see isUnrelated.
checkUnitsAgain() {
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

# findBroken sets $broken to the systemd units that fail now and did not fail before the switch. It sets $still to those that fail
# now and also failed before. If $broken is not empty, findBroken saves the last log lines of the units in $broken, and fails.
findBroken() {
  findFailed
  all=$failed
  # Add the failed systemd units that the switch has reported and that are not in the state failed now. systemd may have restarted
  # such a unit, or the unit was not started because a unit that it needs has failed.
  for name in $told $unstable; do
    case " $all " in *" $name "*) ;; *) all="$all$name " ;; esac
  done
  subtractUnits "$all" "$failedBefore"
  broken=$REPLY
  subtractUnits "$all" "$broken"
  still=$REPLY
  [ -n "$broken" ] || return 0
  mkdir -p "$live/units"
  timeout 20 journalctl --sync 2>/dev/null
  for name in $broken; do
    timeout 20 journalctl --boot --since="@$begunAt" --unit="$name" --lines=10 --output=cat --no-pager >"$live/units/$name" 2>/dev/null
  done
  return 1
}
