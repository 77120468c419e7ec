# shellcheck shell=bash
# Functions that execute a run: they switch to the new system, wait for the confirmations and make
# the system permanent, or roll back.

activateSystem() { # ACTION: activates the new system
  if [ "$activator" = nixos-rebuild ]; then
    setRebuildCommand "$1"
    runSwitch "$armed" "${rebuild[@]}" ${spec:+--specialisation "$spec"}
  else
    runSwitch "$armed" "$to/bin/switch-to-configuration" "$1"
  fi
}

# setRebuildCommand sets $rebuild to the command line of nixos-rebuild for ACTION. Without --no-reexec, nixos-rebuild would first
# evaluate the node's own configuration, to replace itself by a newer nixos-rebuild.
setRebuildCommand() { # ACTION
  rebuild=(nixos-rebuild "$1" --no-reexec --store-path "$path")
}

# prepareSwitch runs the commands of the new system's option nixbench.beforeSwitch, such as the upgrade of a control plane. They
# must be complete before the first service of the new system starts. If they fail, the switch does not begin. They are not run if
# a pre-switch check fails, or if another switch is running.
prepareSwitch() {
  [ -x "$to/etc/nixbench/before-switch" ] || return 0
  runSwitch "$armed" "$to/bin/switch-to-configuration" check
  readReport
  case $code:$flaw in hung:* | killed:* | aborted:* | 1:check | 11:lock) return 1 ;; esac
  runSwitch "$armed" "$to/etc/nixbench/before-switch" "$goal"
  [ "$code" = 0 ]
}

setProfile() { # sets the profile to the new system, or to $generation
  findNewestGeneration
  if [ -n "$generation" ]; then
    nix-env --profile $profile --switch-generation "$generation" >>"$live/log" 2>&1
  elif [ "$wasPath" != "$path" ]; then
    nix-env --profile $profile --set "$path" >>"$live/log" 2>&1
  fi
}

findNewestGeneration() { # sets $newest to the number of the newest generation, or to 0
  newest=0
  generationLinks
  for link in "${links[@]}"; do
    link=${link#"$profile"-}
    link=${link%-link}
    case $link in *[!0-9]* | '') ;; *) [ "$link" -le "$newest" ] || newest=$link ;; esac
  done
}

restoreProfile() { # restores the profile and the boot loader if the run has changed the profile
  restoreGeneration || return 0
  NIXOS_NO_CHECK=1 runSwitch 600 "$wasPath/bin/switch-to-configuration" boot
}

restoreGeneration() { # restores the profile, and fails if the run has not changed it
  [ -n "$was" ] || return
  [ "$(resolve $profile)" != "$wasPath" ] || return
  bad=$(readlink $profile)
  nix-env --profile $profile --switch-generation "$was" >>"$live/log" 2>&1
  # Delete the failed generation, so that it is not in the boot menu. Do not delete a generation that existed before this run:
  # nix-env reuses an older generation that has the same system.
  bad=${bad#system-} bad=${bad%-link}
  [ -n "$generation" ] || [ "$bad" -le "${newest:-0}" ] || nix-env --profile $profile --delete-generations "$bad" >>"$live/log" 2>&1
  return 0
}

# commit makes the new system permanent. If a specialisation runs, the boot default becomes the system without the specialisation,
# because boot loaders list only generations. If commit fails, it sets $reason and restores the profile.
commit() {
  phase=committing why=$code
  save || :
  if ! setProfile; then
    reason=profile
  else
    installBootLoader
    [ "$code" = 0 ] || reason=boot
    if [ "$reason" = boot ] && isRefused; then
      reason=refused
      restoreGeneration
      return 1
    fi
  fi
  if [ -z "$reason" ]; then
    code=${why:-$code}
    return 0
  fi
  why=$code
  restoreProfile
  code=$why
  return 1
}

# installBootLoader makes the new system the boot default, and sets $code to the exit status of this. It runs no pre-switch checks
# for a system that was activated before, because they have passed then.
installBootLoader() {
  local check='' report ended
  [ "$goal" = boot ] || check=1
  if [ "$activator" = nixos-rebuild ]; then
    setRebuildCommand boot
    set -- "${rebuild[@]}"
  else
    set -- "$path/bin/switch-to-configuration" boot
  fi
  openLog
  code=''
  exec {report}< <(NIXOS_NO_CHECK=${NIXOS_NO_CHECK:-$check} runInstaller "$@")
  read -r -t 600 -u "$report" code
  ended=$?
  if [ $ended != 0 ]; then
    if [ $ended -gt 128 ]; then code=hung; else code=killed; fi # otherwise the process that waits for the command was killed
    findSwitchProcesses
    [ ${#processes[@]} = 0 ] || kill -TERM "${processes[@]}" 2>/dev/null
    for _ in {1..200}; do
      ! read -t 0 -u "$report" || break
      pause 0.05
    done
    stopSwitch # also the systemd unit that nixos-rebuild has started
  fi
  exec {report}<&-
  readNewLines echo || : # to the journal
}

# runInstaller runs COMMAND, which installs the boot loader, and prints the exit status of COMMAND. The output of COMMAND goes to
# the log of the run.
runInstaller() { # COMMAND…
  # The run is protected from the OOM killer. Undo this for the boot loader's installer, which is not more important than the
  # node's services.
  echo 0 >/proc/self/oom_score_adj
  [ -z "${bell:-}" ] || exec {bell}>&-
  exec {logFd}<&-
  "$@" </dev/null >>"$live/log" 2>&1
  echo $?
}

# removeMissingUnits is called after a switch was killed. The switch has written lists of systemd units that it was about to
# start, and the next switch would start them. removeMissingUnits removes units from these lists that the old system does not
# have.
removeMissingUnits() {
  for list in "$lists"/start-list "$lists"/restart-list "$lists"/reload-list; do
    [ -s "$list" ] || continue
    while IFS= read -r name; do
      file=$from/etc/systemd/system/$name
      if [ -e "$file" ] || [ -e "${file%%@*}@.${name##*.}" ]; then printf '%s\n' "$name"; fi
    done <"$list" >"$list.new"
    mv "$list.new" "$list"
  done
}

# restoreKeys restores the keys that nixbench has replaced before the switch. It runs the script `restore`, which nixbench has
# uploaded together with the keys.
restoreKeys() {
  [ -f $keysAside/restore ] && [ ! -e $keysAside/settled ] || return 0
  echo "restoring the previous keys" >>"$live/log"
  timeout 60 sh $keysAside/restore </dev/null >>"$live/log" 2>&1 || echo "not all keys could be restored" >>"$live/log"
}

# isRefused reports whether a pre-switch check of the new system has failed. In this case switch-to-configuration has changed
# nothing.
isRefused() {
  readReport
  [ "$flaw" = check ]
}

# changedSystem reports whether a failed run has changed the running system or the system profile.
changedSystem() {
  [ "$(resolve $current)" = "$to" ] || [ "$wasPath" != "$path" ] && [ "$(resolve $profile)" = "$path" ]
}

# dropKeyBackup deletes the backup of the replaced keys. But if the file `hold` exists, nixbench may still restore the keys: then
# dropKeyBackup only marks the backup with the file `settled`.
dropKeyBackup() {
  if [ -e $keysAside/hold ]; then : >$keysAside/settled; elif [ -e $keysAside ]; then rm -rf $keysAside; fi
}

# rollBack activates the previous system. It does not set the boot default: the previous system still is the boot default.
rollBack() { # REASON
  reason=$1
  if [ -z "$from" ]; then
    finishRun failed
    return
  fi
  phase=rolling-back
  now
  deadline=$((now + 600))
  save || :
  removeMissingUnits
  why=$code
  restoreKeys # before the switch starts services that need the keys
  echo "rolling back to $from" >>"$live/log"
  NIXOS_NO_CHECK=1 runSwitch 600 "$from/bin/switch-to-configuration" test
  back=$code code=$why
  restoreReach
  if [ "$back" = 4 ]; then
    readReport
    [ "$flaw" != script ] || back=2
  fi
  if [ "$(resolve $current)" != "$from" ] || [ "$back" != 0 ] && [ "$back" != 4 ]; then
    reason="$reason, and the rollback ended with $back"
    finishRun rollback-failed
    return
  fi
  finishRun rolled-back
}

# finishRun records the outcome of the run.
finishRun() { # OUTCOME
  outcome=$1 phase='done' deadline=
  if [ $profile -ef "$path" ] || [ $current -ef "$to" ]; then recordDeployed; fi
  case $outcome in
  committed | activated | boot) dropKeyBackup ;;
  rolled-back | rollback-failed) ;; # rollBack has restored the keys
  *) if [ "$reason" != refused ] && changedSystem; then dropKeyBackup; else restoreKeys; fi ;;
  esac
  save || :
}

# recordDeployed adds the system to the list of systems that nixbench has deployed to the node. A later run may replace these
# systems, see replaceUnknownProfiles. The list keeps the last 200 to 400 entries.
recordDeployed() {
  local records=()
  [ ! -r "$kept/deployed" ] || mapfile -t records <"$kept/deployed"
  if [ ${#records[@]} -ge 400 ]; then
    printf '%s\n' "${records[@]: -200}" >"$kept/deployed.new" && mv "$kept/deployed.new" "$kept/deployed"
  fi
  printf '%s\n' "$path $run" >>"$kept/deployed"
  [ "$to" = "$path" ] || printf '%s\n' "$to $run" >>"$kept/deployed"
}

supervise() {
  load $live/state || die "no state"
  listen run
  if [ "$phase" != starting ]; then # the run was killed, and systemd has restarted its systemd unit
    recover
    return
  fi
  # If somebody stops the systemd unit, continue with the rollback. A trap must not call recover itself: `return` without a number
  # has another meaning in a trap.
  trap 'exec "$BASH" "$live/script" recover' TERM
  armed=${armed:-0}
  printf -v begunAt '%(%s)T' -1
  unstable='' flaw=''
  findFailed
  failedBefore=$failed
  phase=switching
  save || {
    recover
    return
  }

  if [ "$goal" = boot ]; then
    if commit; then finishRun boot; else finishRun failed; fi
    return
  fi
  recordBefore
  # If the rollback is armed, the profile and the boot loader are changed only after the confirmation, so that a reboot before the
  # confirmation boots the old system. Without a rollback they are changed first, as nixos-rebuild does.
  action=test
  if ! prepareSwitch; then
    case $code:$flaw in hung:* | aborted:* | 1:check | 11:lock) handleFailedSwitch ;; *) reason=prepare; finishRun failed ;; esac
    return
  fi
  if [ "$armed" = 0 ] && [ "$goal" = switch ]; then
    action=switch
    if ! setProfile; then
      reason=profile
      finishRun failed
      return
    fi
  fi
  activateSystem $action
  if ! checkSwitch; then
    handleFailedSwitch
    return
  fi
  # switch-to-configuration returns before all systemd jobs that it has caused are done.
  phase=settling
  if ! verifySwitch; then
    rollBackOrFail "${reason:-late}"
    return
  fi
  if [ "$goal" = test ]; then
    finishRun activated
  elif [ "$action" = switch ] || commit; then
    finishRun committed
  else
    rollBack "$reason"
  fi
}

# verifySwitch succeeds if systemd's jobs succeed, the services that the switch has started stay active for the settle time, and
# the client confirms before and after the settle time. If the switch has started nothing that can act later, there is nothing to
# watch, and one confirmation is enough, unless the client runs health checks, which takes $checks seconds at most. If verifySwitch
# fails, $reason is set, or empty if systemd units have failed.
verifySwitch() {
  local watches=0 seen='' late=''
  waitForJobs && checkUnitsAgain && awaitAnswer waiting confirm && findStarted || return
  ! isAnswered watch || late=yes # the client has uploaded keys, for which services may wait
  # A service, timer, path or socket that the switch has started may start other services. Watch these other services for the
  # settle time too. Repeat this at most five times.
  while [ "${settle:-0}" != 0 ] && [ $watches -lt 5 ] && [ "$marks$startedTriggers$held$late" != "$seen" ]; do
    watches=$((watches + 1)) seen=$startedTriggers$held late=''
    watchServices && waitForJobs && checkUnitsAgain && findStarted || return
  done
  [ "$watches:${checks:-0}" = 0:0 ] || awaitAnswer confirmed confirm-again "${checks:-0}"
}

# isAborted reports whether the client requests a rollback. It then sets $reason.
isAborted() { isAnswered abort && reason=aborted; }

# awaitAnswer waits until the client (nixbench) has confirmed the run over a new connection. It fails if the client does not
# confirm within $armed seconds and MORE, or asks for a rollback. If no rollback is armed, it returns at once.
awaitAnswer() { # PHASE ANSWER [MORE]
  [ "$armed" != 0 ] || return 0
  phase=$1
  now
  deadline=$((now + armed + ${3:-0}))
  save || :
  while ! isAnswered "$2"; do
    ! isAborted || return 1
    now
    if [ "$now" -ge "$deadline" ]; then
      reason=unconfirmed
      return 1
    fi
    pause 1
  done
  phase=settling # the next step saves it
}

# handleFailedSwitch ends a run in which switch-to-configuration has failed with the exit status $code.
handleFailedSwitch() {
  case $code:$flaw in
  11:lock | 1:check)
    # switch-to-configuration has changed nothing, because another switch holds the lock, or because a pre-switch check has
    # failed. $flaw shows this: the exit status alone may also stand for other errors of switch-to-configuration.
    if [ "$flaw" = lock ]; then reason=locked; else reason=refused; fi
    [ "$action" = test ] || restoreGeneration
    finishRun failed
    ;;
  100:*)
    reason=reboot
    if [ "$goal" = test ]; then finishRun failed
    elif [ "$action" = switch ] || { reason=; commit; }; then reason=reboot; finishRun boot
    else finishRun failed; fi
    ;;
  hung:*)
    # The switch was waiting for systemd jobs. Record those that are running now, for the error message.
    jobs=''
    while read -r _ name kind how; do
      [ "$how" != running ] || jobs="$jobs$kind $name, "
    done <<<"$queue"
    rollBackOrFail hung
    ;;
  aborted:*) rollBackOrFail aborted ;;
  *) rollBackOrFail switch ;;
  esac
}

# rollBackOrFail rolls back if the rollback is armed. Otherwise it only records that the run has failed.
rollBackOrFail() { # REASON
  if [ "$armed" = 0 ]; then reason=$1; finishRun failed; else rollBack "$1"; fi
}

# recover rolls back a run that was not finished. During a shutdown it does nothing, because the boot default is still the old
# system.
recover() {
  load $live/state || return 0
  [ "$phase" != 'done' ] || return 0
  case $(</proc/1/comm) in systemd-shutdow*) return 0 ;; esac # after `systemctl reboot --force`, systemd does not answer
  askSystemd is-system-running
  case $answer in stopping*) return 0 ;; esac
  stopSwitch
  code=killed
  if [ "${armed:-0}" = 0 ]; then reason=killed; finishRun failed; else restoreProfile; rollBack killed; fi
}
