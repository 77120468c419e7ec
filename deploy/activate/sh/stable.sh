# shellcheck shell=sh
# After switch-to-configuration has returned: waits for systemd's remaining jobs and watches
# the services that the switch has started.

# listServices prints a line for each loaded service: ID ENTERED RESTARTS TYPE STATE SUBSTATE.
# ENTERED is when the service last became active. Transient services are left out: they
# are not part of any configuration.
listServices() {
  timeout 20 systemctl show '*.service' --no-pager \
    --property=Id,Type,ActiveState,SubState,ActiveEnterTimestampMonotonic,NRestarts,Transient 2>/dev/null |
    {
      id='' transient=''
      while IFS='=' read -r property value; do
        case $property in
        '') printService; id='' ;;
        Id) id=$value type='' state='' sub='' entered='' restarts='' transient='' ;;
        Type) type=$value ;;
        ActiveState) state=$value ;;
        SubState) sub=$value ;;
        ActiveEnterTimestampMonotonic) entered=$value ;;
        NRestarts) restarts=$value ;;
        Transient) transient=$value ;;
        esac
      done
      printService
    }
}

printService() {
  [ -n "$id" ] && [ "$transient" != yes ] || return 0
  printf '%s %s %s %s %s %s\n' "$id" "${entered:-0}" "${restarts:-0}" "${type:-none}" "${state:-none}" "${sub:-none}"
}

# recordBefore records systemd's services and jobs before the switch, so that they are not
# attributed to the new system.
recordBefore() {
  listServices >"$live/services.before"
  jobsBefore=$(queuedJobs | while read -r job _; do printf '%s ' "$job"; done)
}

# isUnrelated reports whether a unit is started by a timer or is transient. Such a unit does not
# depend on the switch.
isUnrelated() { # UNIT
  case $(timeout 10 systemctl show --property=TriggeredBy,Transient "$1" 2>/dev/null) in
  *.timer* | *Transient=yes*) return 0 ;;
  esac
  return 1
}

# pendingJobs prints the jobs that the switch has left in systemd's queue, as "KIND UNIT".
# Not included: jobs from before the switch; scopes and slices; services that timers start; services
# that wait for a key, which may be uploaded after the switch; and jobs that wait for one of these.
pendingJobs() {
  queuedJobs | {
    running='' waiting='' others=''
    while read -r job name kind how; do
      case " $jobsBefore" in *" $job "*) others=yes; continue ;; esac
      case $name in
      *.scope | *.slice | "$runUnit" | "$switchUnit") continue ;;
      *-key.service) others=yes; continue ;;
      esac
      if [ "$how" != running ]; then
        waiting="$waiting$kind $name, "
      elif isUnrelated "$name"; then
        others=yes
      else
        running="$running$kind $name, "
      fi
    done
    if [ -n "$running" ]; then
      printf '%s' "$running"
    elif [ -z "$others" ]; then
      printf '%s' "$waiting"
    fi
  }
}

# waitForJobs waits until systemd has completed the jobs of the switch. It fails with
# reason=hung if the queue does not change for $armed seconds, or 60 if no rollback is
# armed, and with reason=aborted if the client aborts.
waitForJobs() {
  patience=${armed:-0}
  [ "$patience" != 0 ] || patience=60
  now
  moved=$now mark=''
  while pending=$(pendingJobs) && [ -n "$pending" ]; do
    if [ -e "$live/abort" ]; then
      reason=aborted
      return 1
    fi
    now
    if [ "$pending" != "$mark" ]; then
      mark=$pending moved=$now
      deadline=$((now + patience))
      save || :
      echo "waiting for systemd: ${pending%, }" >>"$live/log"
    elif [ $((now - moved)) -ge "$patience" ]; then
      reason=hung jobs=$pending
      return 1
    fi
    sleep 0.2
  done
}

# startedServices prints ID and ENTERED of the services that have started since the
# switch began and still run. Oneshot services are left out: they end when their job is done.
startedServices() {
  before='|' settledBefore=" $failedBefore "
  while read -r id entered restarts _; do
    before="$before$id $entered $restarts|"
  done <"$live/services.before"
  listServices | while read -r id entered restarts type state sub; do
    case $type:$state:$sub in
    oneshot:*) continue ;;
    *:active:* | *:reloading:* | *:activating:auto-restart*) ;;
    *) continue ;;
    esac
    case $settledBefore in *" $id "*) continue ;; esac
    rest=${before#*"|$id "}
    if [ "$rest" != "$before" ]; then
      entry=${rest%%|*}
      [ "${entry% *}" != "$entered" ] || continue
      # A start by the switch resets the restart counter. If the counter has increased,
      # systemd has restarted the service, as it did before the switch.
      count=${entry#* }
      [ "$count" = 0 ] || [ "$restarts" -lt "$count" ] || continue
    fi
    printf '%s %s\n' "$id" "$entered"
  done
}

# watchServices waits until every service that the switch has started has stayed active
# for the settle time. A service that systemd restarts gets 15 more seconds and at most five
# restarts; after that it is in $unstable. A failed service ends the wait, and checkUnitsAgain
# reports it.
watchServices() {
  unstable=''
  [ "${settle:-0}" != 0 ] || return 0
  marks=$(startedServices)
  [ -n "$marks" ] || return 0
  watched=' '
  for name in $(printf '%s\n' "$marks" | cut -d ' ' -f 1); do watched="$watched$name "; done
  now
  begun=$now since=$now limit=$((settle + 15)) deadline=$((now + settle + 15 + ${armed:-0}))
  save || :
  echo "watching for ${settle}s what was started:$watched" >>"$live/log"
  while :; do
    sleep 0.5
    if [ -e "$live/abort" ]; then
      reason=aborted
      return 1
    fi
    latest='' restarting=''
    while read -r id entered restarts _ state _; do
      case $watched in *" $id "*) ;; *) continue ;; esac
      case $state in
      failed) return 0 ;;
      activating) restarting="$restarting$id " ;;
      inactive) continue ;; # it has ended without a failure
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
    done <<END
$(listServices)
END
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
