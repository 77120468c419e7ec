# shellcheck shell=bash
# Functions that wait for systemd's remaining jobs after switch-to-configuration has returned, and
# watch the services that the switch has started.

# listServices sets $services to a line for each service UNIT: ID ENTERED RESTARTS TYPE:STATE:SUBSTATE. ENTERED is when the service
# last became active, in microseconds since boot. listServices leaves out services that run independently of the switch, see
# isIndependent. One request to systemd takes milliseconds for each service, because systemd collects all its properties.
listServices() { # UNIT…
  local lines line
  local -A is=()
  services=()
  [ $# -gt 0 ] || return 0
  askSystemd show --no-pager \
    --property=Id,Type,ActiveState,SubState,ActiveEnterTimestampMonotonic,NRestarts,Transient,TriggeredBy -- "$@"
  # systemctl prints the properties of a service in any order, and an empty line after each service.
  splitLines "${answer//$'\n\n'/$'\nend\n'}end"
  for line in "${lines[@]}"; do
    is[${line%%=*}]=${line#*=}
    [ "$line" = end ] || continue
    [ -z "${is[Id]-}" ] || isIndependent "${is[Id]}" "${is[Transient]-}" "${is[TriggeredBy]-}" ||
      services+=("${is[Id]} ${is[ActiveEnterTimestampMonotonic]:-0} ${is[NRestarts]:-0} ${is[Type]-}:${is[ActiveState]-}:${is[SubState]-}")
    is=()
  done
}

# readInvocations sets invocation[SERVICE], for each service that runs, to the ID that systemd has given to its last start. It
# sets $recent to the services in $alive that have started in the last two minutes, but not in the first 15 seconds after the boot.
# $recent does not contain the services of this run and of its logins, because systemd does not restart them. The file `invocations`
# is older than the answer.
declare -A invocation=() before=()
startedTriggers=''
readInvocations() {
  local lines line fields unit limit
  printf -v limit '%(%s)T' -1
  readUptime
  limit=$((limit - (uptime > 135 ? 120 : uptime - 15)))
  invocation=() recent=()
  echo >"$live/invocations"
  splitLines "$(find $invocations -name 'invocation:*.service' -printf '%f %l %T@\n')"
  for line in "${lines[@]}"; do
    splitFields "$line"
    unit=${fields[0]#invocation:}
    invocation[$unit]=${fields[1]}
    [ "${fields[2]%.*}" -lt "$limit" ] || case " $alive" in *" $unit "*) ownsSession "$unit" || recent+=("$unit") ;; esac
  done
}

# isStarted reports whether systemd may have started a service since the last call of readInvocations: systemd then replaces a
# link in the folder. It starts no program.
isStarted() { [ ! -d $invocations ] || [ ! "$live/invocations" -nt $invocations ]; }

# ownsSession reports whether a systemd unit belongs to this run, or to a login of nixbench.
ownsSession() { # UNIT
  case $1 in "$runUnit" | user@*.service | user-runtime-dir@*.service | sshd@*.service) return 0 ;; esac
  return 1
}

# watchesKeys reports whether a systemd unit does nothing but watch the files of keys, such as nixbench-keys.service.
watchesKeys() { # UNIT
  case $1 in nixbench-keys.service | *-key.service) return 0 ;; esac
  return 1
}

# recordBefore records the services and systemd's jobs before the switch. findFailed must be called before. It adds services that
# systemd restarts repeatedly to $failedBefore, so that nixbench does not report the new system as the cause.
recordBefore() {
  local services lines line fields id
  jobsBefore=''
  readInvocations
  for id in "${!invocation[@]}"; do before[$id]=${invocation[$id]}; done
  listServices "${recent[@]}"
  for line in "${services[@]}"; do
    splitFields "$line"
    [ "${fields[2]}" = 0 ] || failedBefore+="${fields[0]} "
  done
  triggersBefore=$triggers
  # shellcheck disable=SC2086
  [ "$armed" = 0 ] || noteReach "${!before[@]}" $triggers
  askForJobs
  splitLines "$answer"
  for line in "${lines[@]}"; do
    splitFields "$line"
    jobsBefore+="${fields[0]} "
  done
}

# isChanged reports whether the files of a systemd unit differ between the old and the new system.
isChanged() { # UNIT
  local file folder=etc/systemd/system
  for file in "$1" "$1.d/overrides.conf" "${1%%@*}@.${1##*.}"; do
    [ -e "$from/$folder/$file" ] || [ -e "$to/$folder/$file" ] || continue
    [ "$from/$folder/$file" -ef "$to/$folder/$file" ] || [ "$(<"$from/$folder/$file")" = "$(<"$to/$folder/$file")" ] || return 0
  done 2>/dev/null
  return 1
}

# isIndependent reports whether a systemd unit runs at times that do not depend on the switch. The unit is transient, or it is
# started by a timer that the switch has not started.
isIndependent() { # UNIT TRANSIENT TRIGGERS
  local trigger
  for trigger in "${1%.*}.timer" $3; do
    case " $startedTriggers" in *" $trigger "*) return 1 ;; esac
  done
  case $2:$3 in yes:* | *.timer*) return 0 ;; esac
  return 1
}

# isUnrelated reports whether a systemd unit has nothing to do with the switch: it is independent of the switch (isIndependent),
# or it has ended without an error and systemd will restart it.
isUnrelated() { # UNIT
  local triggers transient=no
  askSystemd show --property=TriggeredBy,Transient,SubState,Result "$1"
  case $answer in *SubState=auto-restart*) case $answer in *Result=success*) return 0 ;; esac ;; esac
  case $answer in *Transient=yes*) transient=yes ;; esac
  triggers=${answer#*TriggeredBy=}
  isIndependent "$1" $transient "${triggers%%$'\n'*}"
}

# isOfSwitch reports whether a systemd job belongs to the switch: the job was queued after the switch began, or the switch has
# changed its systemd unit. It returns false for jobs of scopes and slices, of units that failed before the switch, and of
# independent units.
declare -A ofSwitch=()
isOfSwitch() { # JOB UNIT
  if [ -z "${ofSwitch[$1]-}" ]; then
    ofSwitch[$1]=yes
    case $2:" $jobsBefore $failedBefore" in
    *.scope:* | *.slice:* | "$runUnit":*) ofSwitch[$1]=no ;;
    *" $1 "* | *" $2 "*) isChanged "$2" || ofSwitch[$1]=no ;;
    esac
    # Do not wait for a service that a timer starts, even if the switch has started the timer: the service may run for hours.
    [ "${ofSwitch[$1]}" = no ] || ! startedTriggers='' isUnrelated "$2" || ofSwitch[$1]=no
  fi
  [ "${ofSwitch[$1]}" = yes ]
}

# findPendingJobs sets $pending to systemd jobs as "KIND UNIT": those of the switch, and all jobs for which these jobs wait.
# $pending has only the running ones; if none is running, the waiting ones. It sets $held to the jobs that wait for a key
# (NAME-key.service), because nixbench may upload the key after the switch. If systemd does not answer, $pending is a text that
# says so.
findPendingJobs() {
  local lines line fields job last running='' waiting='' what=() state=() waits=() place=()
  pending='' held=''
  askForJobs --before || {
    pending='systemd does not answer, '
    return 0
  }
  splitLines "$answer"
  for line in "${lines[@]}"; do
    splitFields "$line" # systemctl aligns the numbers of jobs with spaces
    case ${fields[*]} in
    [0-9]*)
      last=${fields[0]}
      what[last]="${fields[2]} ${fields[1]}" state[last]=${fields[3]} waits[last]=''
      ;;
    *\ waiting\ for\ job\ *) waits[last]+="${fields[4]} " ;; # the job of the line before waits for this "job NUMBER (…)"
    esac
  done
  for job in "${!what[@]}"; do
    ! isOfSwitch "$job" "${what[job]#* }" || addJob "$job"
  done
  for job in "${!place[@]}"; do
    case ${place[job]}:${state[job]} in
    held:*) watchesKeys "${what[job]#* }" || held+="${what[job]}, " ;;
    *:running) running+="${what[job]}, " ;;
    *) waiting+="${what[job]}, " ;;
    esac
  done
  pending=${running:-$waiting}
}

# addJob sets place[JOB] for a systemd job, and for all jobs for which JOB waits. The value is `held` if JOB waits for a key,
# otherwise `pending`.
addJob() { # JOB
  local other
  [ -z "${place[$1]-}" ] || return 0
  place[$1]=pending
  case ${what[$1]} in *-key.service) place[$1]=held ;; esac
  for other in ${waits[$1]}; do
    [ -n "${what[other]-}" ] || continue
    addJob "$other"
    [ "${place[other]}" = pending ] || place[$1]=held
    isOfSwitch "$other" "${what[other]#* }" || what[other]="${what[other]% (before *} (before ${what[$1]#* })"
  done
}

# waitForJobs waits until systemd has completed the jobs of the switch. It fails with reason=hung if these jobs do not change for
# $armed seconds (60 if no rollback is armed), or are not completed after ten times this time plus ten minutes. It fails with
# reason=aborted if the client requests a rollback.
waitForJobs() {
  patience=${armed:-0}
  [ "$patience" != 0 ] || patience=60
  now
  began=$now moved=$now mark=''
  while findPendingJobs && [ -n "$pending" ]; do
    ! isAborted || return 1
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
    pause 0.1
  done
}

# findStarted sets $marks to the services that have started since the switch began, or since findStarted or watchServices last
# looked, and still run: a line "ID ENTERED" for each. It leaves out oneshot services that have ended, services that failed or
# restarted repeatedly before the switch, and nixbench-keys.service, which only watches files. It adds timers, paths and sockets
# that the switch has started or changed to $startedTriggers. findFailed must have set $alive and $triggers before: a service that
# restarts repeatedly may have no invocation ID at the moment.
findStarted() {
  local services line fields id started=()
  marks=''
  for id in $triggers; do
    case " $startedTriggers" in *" $id "*) continue ;; esac
    case " $triggersBefore" in *" $id "*) isChanged "$id" || continue ;; esac
    startedTriggers="$startedTriggers$id "
  done
  readInvocations
  for id in $alive; do
    [ -n "${before[$id]-}" ] && [ "${invocation[$id]-}" = "${before[$id]}" ] || ownsSession "$id" || watchesKeys "$id" || started+=("$id")
    before[$id]=${invocation[$id]-}
  done
  listServices "${started[@]}"
  for line in "${services[@]}"; do
    splitFields "$line"
    case ${fields[3]} in
    oneshot:activating:*) ;;
    oneshot:*) continue ;;
    *:active:* | *:reloading:* | *:activating:auto-restart*) ;;
    *:activating:*) [ "${fields[2]}" != 0 ] || continue ;; # between two attempts, such as in ExecStartPre
    *) continue ;;
    esac
    case " $failedBefore " in *" ${fields[0]} "*) continue ;; esac
    marks+="${fields[0]} ${fields[1]}"$'\n'
  done
}

# watchServices waits for the settle time, until every service in $marks has stayed active for this time. If systemd restarts a
# service, the settle time begins again. After 15 additional seconds or five restarts, it gives up, and $unstable contains the
# restarted services. If a service fails, it ends the wait, and checkUnitsAgain reports the failure later. While the invocation IDs
# of the services stay the same, systemd is not asked, because it collects all properties of each service.
watchServices() {
  local services lines line fields id units=() changed restarting=''
  splitLines "$marks"
  for line in "${lines[@]}"; do
    id=${line%% *}
    units+=("$id")
    [ -n "${before[$id]-}" ] || restarting=yes
  done
  watched=" ${units[*]} "
  now
  begun=$now since=${up/./} limit=$((settle + 15)) deadline=$((now + settle + 15 + ${armed:-0}))
  save || :
  echo "watching for ${settle}s the started units:$watched$startedTriggers$held" >>"$live/log"
  while :; do
    pause 0.5
    ! isAborted || return 1
    changed=$unstable$restarting
    ! isStarted || readInvocations
    for id in "${units[@]}"; do
      [ "${invocation[$id]-}" = "${before[$id]-}" ] || changed=yes
      before[$id]=${invocation[$id]-} # so findStarted does not report this start again
    done
    now
    [ -n "$changed" ] || [ $((${up/./} - since)) -ge "${settle}00" ] || continue
    latest='' restarting=''
    listServices "${units[@]}"
    for line in "${services[@]}"; do
      splitFields "$line"
      id=${fields[0]} line="$id ${fields[1]}"
      case $watched in *" $id "*) ;; *) continue ;; esac
      case ${fields[3]} in
      *:failed:*) return 0 ;;
      oneshot:activating:auto-restart*) restarting="$restarting$id " ;;
      oneshot:*) continue ;; # it has no start to wait for
      *:activating:*) restarting="$restarting$id " ;;
      *:inactive:*) continue ;; # the service has ended without a failure
      esac
      latest+=$line$'\n'
      case $'\n'$marks in *$'\n'"$line"$'\n'*) continue ;; esac
      unstable="$unstable$id "
      [ "${fields[2]}" -lt 5 ] || limit=0
    done
    now
    if [ -n "$unstable$restarting" ]; then
      since=${up/./}
      if [ $((now - begun)) -ge "$limit" ]; then
        unstable=$unstable$restarting
        return 0
      fi
      unstable='' marks=$latest
    elif [ $((${up/./} - since)) -ge "${settle}00" ]; then
      return 0
    fi
  done
}
