# shellcheck shell=bash
# Functions that wait for systemd's remaining jobs after switch-to-configuration has returned, and
# watch the services that the switch has started.

# listServices prints a line for each service UNIT: ID ENTERED RESTARTS TYPE STATE SUBSTATE. ENTERED is when the service last
# became active, in microseconds since boot. listServices leaves out services that run independently of the switch, see
# isIndependent. One request to systemd takes milliseconds for each service, because systemd collects all its properties.
listServices() { # UNIT…
  local property value
  askSystemd show --no-pager \
    --property=Id,Type,ActiveState,SubState,ActiveEnterTimestampMonotonic,NRestarts,Transient,TriggeredBy -- "$@"
  clearService
  # systemctl prints the properties of a service in any order, and an empty line after each service.
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
  [ -n "$id" ] && ! isIndependent "$id" "$transient" "$triggers" || return 0
  printf '%s %s %s %s %s %s\n' "$id" "${entered:-0}" "${restarts:-0}" "${type:-none}" "${state:-none}" "${sub:-none}"
}

# readInvocations sets invocation[SERVICE], for each service that runs, to the ID that systemd has given to its last start. It
# sets $recent to the services that have started in the last two minutes. $recent does not contain the services of this run and of
# its logins, because systemd does not restart them. The file `invocations` is older than the answer.
declare -A invocation=() before=()
startedTriggers=''
readInvocations() {
  local unit id time limit
  printf -v limit '%(%s)T' -1
  limit=$((limit - 120))
  invocation=() recent=()
  echo >"$live/invocations"
  while read -r unit id time; do
    unit=${unit#invocation:}
    invocation[$unit]=$id
    ! ownsSession "$unit" || continue
    [ "${time%.*}" -lt "$limit" ] || recent+=("$unit")
  done < <(find $invocations -name 'invocation:*.service' -printf '%f %l %T@\n')
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
  local id restarts job
  jobsBefore=''
  readInvocations
  for id in "${!invocation[@]}"; do before[$id]=${invocation[$id]}; done
  if [ ${#recent[@]} -gt 0 ]; then
    while read -r id _ restarts _; do
      [ "$restarts" = 0 ] || failedBefore="$failedBefore$id "
    done < <(listServices "${recent[@]}")
  fi
  triggersBefore=$triggers
  # shellcheck disable=SC2086
  [ "$armed" = 0 ] || noteReach "${!before[@]}" $triggers
  askForJobs
  while read -r job _; do jobsBefore="$jobsBefore$job "; done < <(printf %s "$answer")
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
  local job name kind how last running='' waiting='' what=() state=() waits=() place=()
  pending='' held=''
  askForJobs --before || {
    pending='systemd does not answer, '
    return 0
  }
  while read -r job name kind how; do
    case $job:$name:$kind in
    [0-9]*) last=$job what[job]="$kind $name" state[job]=$how waits[job]='' ;;
    *:waiting:for) # the line before has a job that waits for this "job NUMBER (…)"
      how=${how#job }
      waits[last]+="${how%% *} "
      ;;
    esac
  done < <(printf %s "$answer")
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
    pause 0.2
  done
}

# findStarted sets $marks to the services that have started since the switch began or since the last call, and still run: a line
# "ID ENTERED" for each. It leaves out oneshot services that have ended, services that failed or restarted repeatedly before the
# switch, and nixbench-keys.service, which only watches files. It adds timers, paths and sockets that the switch has started or
# changed to $startedTriggers. findFailed must have set $alive and $triggers before: a service that restarts repeatedly may have
# no invocation ID at the moment.
findStarted() {
  local id entered restarts type state sub started=()
  marks=''
  for id in $triggers; do
    case " $startedTriggers" in *" $id "*) continue ;; esac
    case " $triggersBefore" in *" $id "*) isChanged "$id" || continue ;; esac
    startedTriggers="$startedTriggers$id "
  done
  readInvocations
  for id in $alive "${!invocation[@]}"; do
    [ -n "${before[$id]-}" ] && [ "${invocation[$id]-}" = "${before[$id]}" ] || ownsSession "$id" || watchesKeys "$id" || started+=("$id")
    before[$id]=${invocation[$id]-}
  done
  [ ${#started[@]} -gt 0 ] || return 0
  while read -r id entered restarts type state sub; do
    case $type:$state:$sub in
    oneshot:activating:*) ;;
    oneshot:*) continue ;;
    *:active:* | *:reloading:* | *:activating:auto-restart*) ;;
    *:activating:*) [ "$restarts" != 0 ] || continue ;; # between two attempts, such as in ExecStartPre
    *) continue ;;
    esac
    case " $failedBefore " in *" $id "*) continue ;; esac
    marks="$marks$id $entered
"
  done < <(listServices "${started[@]}")
}

# watchServices waits for the settle time, until every service in $marks has stayed active for this time. If systemd restarts a
# service, the settle time begins again. After 15 additional seconds or five restarts, it gives up, and $unstable contains the
# restarted services. If a service fails, it ends the wait, and checkUnitsAgain reports the failure later. While the invocation IDs
# of the services stay the same, systemd is not asked, because it collects all properties of each service.
watchServices() {
  local units=() changed restarting=''
  local -A lastIDs=()
  while read -r name _; do
    [ -n "$name" ] || continue
    units+=("$name") lastIDs[$name]=${before[$name]-}
    [ -n "${lastIDs[$name]}" ] || restarting=yes
  done <<<"$marks"
  watched=" ${units[*]} "
  now
  begun=$now since=$now limit=$((settle + 15)) deadline=$((now + settle + 15 + ${armed:-0}))
  save || :
  echo "watching for ${settle}s the started units:$watched$startedTriggers$held" >>"$live/log"
  while :; do
    pause 0.5
    ! isAborted || return 1
    changed=$unstable$restarting
    ! isStarted || readInvocations
    for id in "${units[@]}"; do
      [ "${invocation[$id]-}" = "${lastIDs[$id]}" ] || changed=yes
      lastIDs[$id]=${invocation[$id]-}
    done
    now
    [ -n "$changed" ] || [ $((now - since)) -gt "$settle" ] || continue
    latest='' restarting=''
    [ ${#units[@]} = 0 ] || while read -r id entered restarts type state sub; do
      case $watched in *" $id "*) ;; *) continue ;; esac
      case $type:$state:$sub in
      *:failed:*) return 0 ;;
      oneshot:activating:auto-restart*) restarting="$restarting$id " ;;
      oneshot:*) continue ;; # it has no start to wait for
      *:activating:*) restarting="$restarting$id " ;;
      *:inactive:*) continue ;; # the service has ended without a failure
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
