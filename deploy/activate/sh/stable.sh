# shellcheck shell=bash
# Functions that wait for systemd's remaining jobs after switch-to-configuration has returned, and
# watch the services that the switch has started.

# listServices prints a line for each of the services: ID ENTERED RESTARTS TYPE STATE SUBSTATE.
# ENTERED is when the service last became active, in microseconds since boot. Transient services and
# services that a timer starts are left out, since the switch does not decide when they run.
# systemd collects all properties of a service for each request, which takes it milliseconds.
listServices() { # UNIT…
  local property value
  askSystemd show --no-pager \
    --property=Id,Type,ActiveState,SubState,ActiveEnterTimestampMonotonic,NRestarts,Transient,TriggeredBy -- "$@"
  clearService
  # An empty line ends a service. systemd prints the properties in its own order.
  while IFS='=' read -r property value; do
    case $property in
    '')
      printService
      clearService
      ;;
    Id) id=$value ;;
    Type) type=$value ;;
    ActiveState) state=$value ;;
    SubState) sub=$value ;;
    ActiveEnterTimestampMonotonic) entered=$value ;;
    NRestarts) restarts=$value ;;
    Transient) transient=$value ;;
    TriggeredBy) triggers=$value ;;
    esac
  done < <(printf %s "$answer")
  printService
}

clearService() { id='' type='' state='' sub='' entered='' restarts='' transient='' triggers=''; }

printService() {
  [ -n "$id" ] && [ "$transient" != yes ] || return 0
  case $triggers in *.timer*) return 0 ;; esac
  printf '%s %s %s %s %s %s\n' "$id" "${entered:-0}" "${restarts:-0}" "${type:-none}" "${state:-none}" "${sub:-none}"
}

# readInvocations sets $invocation of each service that runs to the ID that systemd has given to its last start, and
# $recent to the services that have started in the last two minutes. It leaves out of $recent the services of this run
# and of its logins, which systemd does not restart.
declare -A invocation=() before=()
readInvocations() {
  local unit id time limit
  printf -v limit '%(%s)T' -1
  limit=$((limit - 120))
  invocation=() recent=()
  while read -r unit id time; do
    unit=${unit#invocation:}
    invocation[$unit]=$id
    case $unit in "$runUnit" | user@*.service | user-runtime-dir@*.service | sshd@*.service) continue ;; esac
    [ "${time%.*}" -lt "$limit" ] || recent+=("$unit")
  done < <(find /run/systemd/units -name 'invocation:*.service' -printf '%f %l %T@\n')
}

# recordBefore records the services and systemd's jobs before the switch, after findFailed. It adds the services that
# systemd restarts repeatedly to $failedBefore, so that the new system is not reported as the cause.
recordBefore() {
  local id restarts job name
  readInvocations
  for id in "${!invocation[@]}"; do before[$id]=${invocation[$id]}; done
  if [ ${#recent[@]} -gt 0 ]; then
    while read -r id _ restarts _; do
      [ "$restarts" = 0 ] || failedBefore="$failedBefore$id "
    done < <(listServices "${recent[@]}")
  fi
  jobsBefore=$activating$restarting
  askForJobs
  while read -r job name _; do jobsBefore="$jobsBefore$job $name "; done < <(printf %s "$answer")
}

# isUnrelated reports whether a unit is independent of the switch: a timer starts the unit, the unit
# is transient, or it has ended without an error and systemd will restart it.
isUnrelated() { # UNIT
  askSystemd show --property=TriggeredBy,Transient,SubState,Result "$1"
  case $answer in
  *.timer* | *Transient=yes*) return 0 ;;
  *SubState=auto-restart*) case $answer in *Result=success*) return 0 ;; esac ;;
  esac
  return 1
}

# findPendingJobs sets $pending to the jobs of the switch that are still in systemd's queue, as "KIND UNIT".
# It leaves out jobs of units that had a job before the switch; jobs of scopes and slices; running jobs of
# unrelated units, see isUnrelated; jobs of the units *-key.service, whose keys may be uploaded after the
# switch; and all waiting jobs, if a job was left out for which they may be waiting. If systemd does not answer, the jobs
# are unknown, and $pending is a text for the message.
findPendingJobs() {
  local running='' waiting='' others='' job name kind how
  askForJobs || {
    pending='systemd does not answer, '
    return 0
  }
  while read -r job name kind how; do
    [ -n "$job" ] || continue
    case " $jobsBefore" in *" $job "* | *" $name "*) others=yes; continue ;; esac
    case $name in
    *.scope | *.slice | "$runUnit") continue ;;
    *-key.service) others=yes; continue ;;
    esac
    if [ "$how" != running ]; then
      waiting="$waiting$kind $name, "
    elif isUnrelated "$name"; then
      others=yes
    else
      running="$running$kind $name, "
    fi
  done < <(printf %s "$answer")
  pending=$running
  [ -n "$running$others" ] || pending=$waiting
}

# waitForJobs waits until systemd has completed the jobs of the switch. It fails with reason=hung if
# the jobs do not change for $armed seconds (60 if no rollback is armed), or are not completed after
# ten times that time plus ten minutes. It fails with reason=aborted if the client aborts.
waitForJobs() {
  patience=${armed:-0}
  [ "$patience" != 0 ] || patience=60
  now
  began=$now moved=$now mark=''
  while findPendingJobs && [ -n "$pending" ]; do
    if isAnswered abort; then
      reason=aborted
      return 1
    fi
    now
    if [ "$pending" != "$mark" ]; then
      mark=$pending moved=$now
      deadline=$((now + patience))
      save || :
      echo "waiting for systemd: ${pending%, }" >>"$live/log"
    fi
    if [ $((now - moved)) -ge "$patience" ] || [ $((now - began)) -ge $((patience * 10 + 600)) ]; then
      reason=hung jobs=$pending
      return 1
    fi
    pause 0.2
  done
}

# findStarted sets $marks to ID and ENTERED, a line each, of the services that have started since the switch began and
# still run. It leaves out oneshot services, which end by themselves, services that failed or restarted repeatedly
# before the switch, and nixbench-keys.service, which only watches files. It needs $restarting, see findFailed.
findStarted() {
  local id entered type state sub started=()
  marks=''
  [ "${settle:-0}" != 0 ] || return 0
  readInvocations
  for id in "${!invocation[@]}"; do
    [ "${invocation[$id]}" = "${before[$id]-}" ] || [ "$id" = nixbench-keys.service ] || started+=("$id")
  done
  for id in $restarting; do # such a service has no invocation
    case $id in *.service) started+=("$id") ;; esac
  done
  [ ${#started[@]} -gt 0 ] || return 0
  while read -r id entered _ type state sub; do
    case $type:$state:$sub in
    oneshot:*) continue ;;
    *:active:* | *:reloading:* | *:activating:auto-restart*) ;;
    *) continue ;;
    esac
    case " $failedBefore " in *" $id "*) continue ;; esac
    marks="$marks$id $entered
"
  done < <(listServices "${started[@]}")
}

# watchServices waits until every service in $marks has stayed active for the settle time. If systemd restarts a service, the settle time begins again. After 15 additional
# seconds or five restarts, $unstable contains the restarted services. A failed service ends the
# wait; checkUnitsAgain then reports the failure.
watchServices() {
  local units=()
  while read -r name _; do [ -z "$name" ] || units+=("$name"); done <<<"$marks"
  watched=" ${units[*]} "
  now
  begun=$now since=$now limit=$((settle + 15)) deadline=$((now + settle + 15 + ${armed:-0}))
  save || :
  echo "watching for ${settle}s the started services:$watched" >>"$live/log"
  while :; do
    pause 0.5
    if isAnswered abort; then
      reason=aborted
      return 1
    fi
    latest='' restarting=''
    while read -r id entered restarts _ state _; do
      case $watched in *" $id "*) ;; *) continue ;; esac
      case $state in
      failed) return 0 ;;
      activating) restarting="$restarting$id " ;;
      inactive) continue ;; # the service has ended without a failure
      esac
      latest="$latest$id $entered
"
      case "
$marks
" in *"
$id $entered
"*) ;; *)
        unstable="$unstable$id "
        [ "$restarts" -lt 5 ] || limit=0
        ;;
      esac
    done < <(listServices "${units[@]}")
    now
    if [ -n "$unstable$restarting" ]; then
      since=$now
      if [ $((now - begun)) -ge "$limit" ]; then
        unstable=$unstable$restarting
        return 0
      fi
      unstable='' marks=$latest
    elif [ $((now - since)) -gt "$settle" ]; then
      return 0
    fi
  done
}
