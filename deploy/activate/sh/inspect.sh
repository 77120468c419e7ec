# shellcheck shell=bash
# Functions that print the state of the node, one name=value per line.

# findFailed sets four lists of systemd units. $failed: units that failed, or that systemd is about to restart. $restarting: only
# those that systemd is about to restart. $alive: services that run, start or are about to be restarted. $triggers: active timers,
# paths and sockets.
findFailed() {
  local lines fields line name
  failed='' restarting='' alive='' triggers=''
  askSystemd list-units --all --full --plain --no-legend --no-pager --state=failed,activating,waiting,listening,running
  splitLines "$answer"
  for line in "${lines[@]}"; do
    splitFields "$line"
    name=${fields[0]}
    [ "$name" != "$runUnit" ] || continue
    case $name in
    *.timer | *.path | *.socket) triggers="$triggers$name " ;;
    *.service) [ "${fields[2]}" = failed ] || alive="$alive$name " ;;
    esac
    case ${fields[2]}:${fields[3]} in
    *:auto-restart*) failed="$failed$name " restarting="$restarting$name " ;;
    failed:*) failed="$failed$name " ;;
    esac
  done
}

isNixOS() {
  [ ! -e /etc/NIXOS ] || return 0
  while read -r line; do
    case $line in ID=nixos | 'ID="nixos"') return 0 ;; esac
  done </etc/os-release
  return 1
} 2>/dev/null

# readLinks sets target[PATH] for each PATH to the file to which the links at PATH lead. One program resolves all paths. A PATH
# that does not exist gets no target. If a path is removed meanwhile, readLinks fails and sets no target.
declare -A target=()
readLinks() { # PATH…
  local paths=() resolved=() i
  for link; do [ ! -e "$link" ] || paths+=("$link"); done
  target=()
  [ ${#paths[@]} -gt 0 ] || return 0
  mapfile -t resolved < <(readlink -e -- "${paths[@]}")
  # If a path was removed meanwhile, the output has fewer lines than there are paths.
  [ ${#resolved[@]} = ${#paths[@]} ] || return
  for i in "${!paths[@]}"; do target[${paths[i]}]=${resolved[i]}; done
}

# resolveFolders does the same as readLinks, but only for folders, and without starting a program. It changes the current folder
# of the shell.
resolveFolders() { # PATH…
  local folder
  target=()
  for folder; do
    if [ -d "$folder" ]; then
      cd -P "$folder" 2>/dev/null || return # it was removed meanwhile
      target[$folder]=$PWD
    elif [ -e "$folder" ]; then
      target[$folder]=$folder
    fi
  done
  cd /
}

# generationLinks sets $links to the paths of the links to the generations of the system profile.
generationLinks() {
  links=()
  for link in "$profile"-*-link; do [ ! -L "$link" ] || links+=("$link"); done
}

# readProfileLink sets $link to the target of the link of the system profile, such as system-12-link. It starts a program only if
# several generations have the same system as the profile.
readProfileLink() {
  local found=()
  link=''
  [ -L $profile ] || return 0
  generationLinks
  for link in "${links[@]}"; do [ ! $profile -ef "$link" ] || found+=("${link##*/}"); done
  if [ ${#found[@]} = 1 ]; then link=${found[0]}; else link=$(readlink $profile); fi
}

# readGeneration sets $was to the number of the current generation of the system profile.
readGeneration() {
  readProfileLink
  was=${link##*/} was=${was#system-} was=${was%-link}
}

kernelFiles() { printf '%s\n' "$1/kernel" "$1/initrd" "$1/kernel-modules"; } # SYSTEM

printKernel() { # NAME SYSTEM: prints the parts of a system that only a reboot changes
  [ -e "$2" ] || return 0
  local params=
  [ ! -r "$2/kernel-params" ] || read -r params <"$2/kernel-params" || :
  printf '%s=%s %s %s %s\n' "$1" "${target[$2/kernel]-}" "${target[$2/initrd]-}" "${target[$2/kernel-modules]-}" "$params"
}

# nameKernels sets target[…] for the kernel, initrd, modules and kernel parameters of the given systems. Only a reboot changes
# these parts. The same parts of two systems get the same target if they are the same file. nameKernels starts no program.
nameKernels() {
  local part system other
  for part in kernel initrd kernel-modules; do
    for system in $booted $profile; do
      [ -e "$system/$part" ] || continue
      for other in $booted $profile; do
        [ ! "$system/$part" -ef "$other/$part" ] || break
      done
      target[$system/$part]=$other/$part
    done
  done
}

# inspect prints the state of the node. With `brief`, it starts no program, and leaves out the state of systemd and its failed units,
# the times and NixOS versions of generations, and the store paths of kernels. `units` is the same with the failed units.
inspect() { # PATH SPEC [brief|units]
  local system=$1${2:+/specialisation/$2} link version files
  declare -A times=()
  if isNixOS; then echo "nixos=yes"; else echo "nixos=no"; fi
  generationLinks
  if [ -n "${3:-}" ]; then
    resolveFolders $current $booted $profile "${links[@]}" && nameKernels
  else
    mapfile -t files < <(kernelFiles $booted; kernelFiles $profile)
    readLinks $current $booted $profile "${links[@]}" "${files[@]}" ${1:+"$system"}
  fi || die "a generation was removed during the inspection; inspect the node again"
  echo "current=${target[$current]-}"
  echo "booted=${target[$booted]-}"
  echo "profile=${target[$profile]-}"
  printEngine
  if [ ${#links[@]} = 0 ] || [ -n "${3:-}" ]; then
    readProfileLink
    echo "link=$link"
  else
    while read -r link seconds version; do
      if [ "$link" = $profile ]; then echo "link=$version"; else times[$link]=${seconds%.*}; fi
    done < <(find "${links[@]}" $profile -maxdepth 0 -printf '%p %T@ %l\n')
  fi
  for link in "${links[@]}"; do
    version=''
    [ -n "${3:-}" ] || [ ! -r "$link/nixos-version" ] || read -r version <"$link/nixos-version" || :
    echo "generation=$link ${times[$link]-0} ${target[$link]-} $version"
  done
  if [ "${3:-}" != brief ]; then
    findFailed
    echo "failed=$failed"
  fi
  if [ -z "${3:-}" ]; then
    askSystemd is-system-running
    echo "system=${answer%$'\n'}"
  fi
  printBoot
  readUptime
  echo "uptime=$uptime"
  printKernel kernel-booted $booted
  printKernel kernel-profile $profile
  [ ! -r $kept/deployed ] || while read -r deployed _; do echo "deployed=$deployed"; done <$kept/deployed
  [ -s $keyList ] || [ -e $keyList.new ] || [ -e $keysAside ] || echo "no-keys=yes"
  if [ -n "$1" ]; then
    [ -x "$system/bin/switch-to-configuration" ] && echo "wanted=${target[$system]-}"
    [ -d "$1/specialisation" ] && for name in "$1"/specialisation/*; do
      [ -e "$name" ] && echo "specialisation=${name##*/}"
    done
  fi
  printRun
}

# printEngine prints the kind of the cluster engine in the running system, such as kubernetes; see modules/engine.nix.
printEngine() {
  local kind=
  [ ! -r "$current/etc/nixbench/engine" ] || read -r kind <"$current/etc/nixbench/engine" || :
  echo "engine=$kind"
}

printBoot() {
  read -r value <$bootId
  echo "boot-id=$value"
}

# readUptime sets $uptime to the seconds since the node's first process was started. It does not use /proc/uptime alone, which in a
# container counts since the boot of the host.
readUptime() {
  local fields
  now
  read -ra fields </proc/1/stat
  uptime=$((now - fields[21] / 100)) # the kernel counts in hundredths of a second
}

# printRun prints the record of the last run, and the line end=yes. The argument `followed` means that the run has not ended and
# that this shell prints its log to a client.
printRun() { # [followed]
  if load $live/state || load $kept/state; then
    show run-
    if [ "$phase" != 'done' ] && { [ -n "${1:-}" ] || isTransientActive $runUnit; }; then
      echo "run-alive=yes"
      now
      echo "run-left=$((${deadline:-$now} - now))"
      # While a nixbench follows the run, it writes the file `seen` every second. Print the age of this file.
      if [ -n "${1:-}" ]; then
        echo run-seen=0
      else
        seen=$(stat -c %Y $live/seen 2>/dev/null) && printf 'run-seen=%s\n' $(($(printf '%(%s)T' -1) - seen))
      fi
    fi
  fi
  echo end=yes
}
