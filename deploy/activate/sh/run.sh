# shellcheck shell=sh
# The run itself: switch, wait to be confirmed, commit; or go back.

activation() { # ACTION: the command that activates the new system
  if [ "$activator" = nixos-rebuild ]; then
    call "$armed" nixos-rebuild "$1" --store-path "$path" ${spec:+--specialisation "$spec"}
  else
    call "$armed" "$to/bin/switch-to-configuration" "$1"
  fi
}

advance() { # the profile, to an explicit generation
  newest=$(newest)
  if [ -n "$generation" ]; then
    nix-env --profile $profile --switch-generation "$generation" >>"$live/log" 2>&1
  elif [ "$wasPath" != "$path" ]; then
    nix-env --profile $profile --set "$path" >>"$live/log" 2>&1
  fi
}

newest() { # number of the newest generation; 0 if there is none
  for link in $profile-*-link; do
    number=${link#"$profile"-}
    number=${number%-link}
    case $number in *[!0-9]* | '') ;; *) echo "$number" ;; esac
  done | sort -n | tail -n 1
}

retreat() { # the profile and the boot loader
  [ -n "$was" ] || return 0
  [ "$(resolve $profile)" != "$wasPath" ] || return 0
  bad=$(readlink $profile)
  nix-env --profile $profile --switch-generation "$was" >>"$live/log" 2>&1
  # Nor shall the boot menu offer it.
  bad=${bad#system-} bad=${bad%-link}
  # If it is ours: nix-env takes up an older generation of the same system.
  [ -n "$generation" ] || [ "$bad" -le "${newest:-0}" ] || nix-env --profile $profile --delete-generations "$bad" >>"$live/log" 2>&1
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

# Keys came before the switch, so they go back with it. What puts them back came
# with them.
keysBack() {
  [ -f $keysAside/restore ] && [ ! -e $keysAside/settled ] || return 0
  echo "putting back the keys from before" >>"$live/log"
  timeout 60 sh $keysAside/restore </dev/null >>"$live/log" 2>&1 || echo "not all keys could be put back" >>"$live/log"
}

# half tells whether a run that failed, and was not taken back, left something.
half() {
  [ "$(resolve $current)" = "$to" ] || [ "$wasPath" != "$path" ] && [ "$(resolve $profile)" = "$path" ]
}

# Old secrets do not outlive what they are kept for.
keysStay() {
  if [ -e $keysAside/hold ]; then : >$keysAside/settled; else rm -rf $keysAside; fi
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
  keysBack # first: what starts again wants them
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
  case $outcome in
  committed | activated | boot) keysStay ;;
  rolled-back | rollback-failed) ;; # they went first
  *) if half; then keysStay; else keysBack; fi ;;
  esac
  rm -f "$roots/next" "$live/confirm" "$live/confirm-again" "$live/abort"
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
  begunAt=$(date +%s) unstable=''
  failedBefore=$(failed)
  phase=switching
  save || die "cannot keep a record of the switch"

  if [ "$goal" = boot ]; then
    if commit; then finish boot; else finish failed; fi
    return
  fi
  recordBefore
  # Armed, nothing permanent changes before we are confirmed, so that a reboot
  # always ends up in the old system. Otherwise it is done as nixos-rebuild does it.
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
    giveUp
    return
  fi
  # switch-to-configuration does not wait for all that it causes.
  phase=settling
  if ! holdsUp; then
    restoreOrFail "${reason:-late}"
    return
  fi
  if [ "$goal" = test ]; then
    finish activated
  elif [ $action = switch ] || commit; then
    finish committed
  else
    goBack "$reason"
  fi
}

# holdsUp reports whether the node stays as the switch has left it, and the client can
# log in before and after that is known. Where it fails, $reason says why, or is empty
# if units have failed.
holdsUp() {
  waitForJobs && judgeLater && awaitAnswer waiting confirm &&
    watchServices && waitForJobs && judgeLater && awaitAnswer confirmed confirm-again
}

# awaitAnswer waits, where the rollback is armed, until the client has logged in over a
# new connection and said so. It fails when the time is up, and if the client asks for
# that.
awaitAnswer() { # PHASE ANSWER
  [ "$armed" != 0 ] || return 0
  phase=$1
  now
  deadline=$((now + armed))
  save || :
  while ! [ -e "$live/$2" ]; do
    if [ -e "$live/abort" ]; then
      reason=aborted
      return 1
    fi
    now
    if [ "$now" -ge "$deadline" ]; then
      reason=unconfirmed
      return 1
    fi
    sleep 0.05
  done
  phase=settling
  save || :
}

# giveUp ends a run whose call of switch-to-configuration has failed, with $code.
giveUp() {
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
    restoreOrFail hung
    ;;
  aborted) restoreOrFail aborted ;;
  *) restoreOrFail switch ;;
  esac
}

# restoreOrFail goes back where the rollback is armed.
restoreOrFail() { # REASON
  if [ "$armed" = 0 ]; then reason=$1; finish failed; else goBack "$1"; fi
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
