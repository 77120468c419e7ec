# shellcheck shell=sh
# Functions that print the state of the node, one name=value per line.

# failedUnits prints the failed units and the units that systemd is about to restart.
failedUnits() {
  timeout 20 systemctl list-units --all --full --plain --no-legend --no-pager \
    --state=failed,auto-restart,auto-restart-queued 2>/dev/null |
    while read -r name _; do
      case $name in "$runUnit" | "$switchUnit") ;; *) printf '%s ' "$name" ;; esac
    done
}

printKernel() { # NAME SYSTEM: prints the parts of a system that only a reboot changes
  [ -e "$2" ] || return 0
  params=
  [ ! -r "$2/kernel-params" ] || read -r params <"$2/kernel-params" || :
  printf '%s=%s %s %s %s\n' "$1" "$(resolve "$2/kernel")" "$(resolve "$2/initrd")" "$(resolve "$2/kernel-modules")" "$params"
}

inspect() { # PATH SPEC ACTIVATOR
  nixos=no
  if [ -e /etc/NIXOS ] || grep -q '^ID="\?nixos"\?$' /etc/os-release 2>/dev/null; then nixos=yes; fi
  echo "nixos=$nixos"
  echo "current=$(resolve $current)"
  echo "booted=$(resolve $booted)"
  echo "profile=$(resolve $profile)"
  echo "link=$(readlink $profile 2>/dev/null)"
  for link in "$profile"-*-link; do
    [ -L "$link" ] || continue
    version=
    [ ! -r "$link/nixos-version" ] || read -r version <"$link/nixos-version" || :
    echo "generation=$(stat -c '%n %Y' "$link") $(resolve "$link") $version"
  done
  echo "failed=$(failedUnits)"
  echo "system=$(timeout 20 systemctl is-system-running 2>/dev/null)"
  echo "boot-id=$(cat $bootId)"
  read -r up _ </proc/uptime
  echo "uptime=${up%.*}"
  printKernel kernel-booted $booted
  printKernel kernel-current $current
  printKernel kernel-profile $profile
  [ ! -r $kept/deployed ] || while read -r deployed _; do echo "deployed=$deployed"; done <$kept/deployed
  echo "previous=$(resolve $roots/previous)"
  if [ "$3" = nixos-rebuild ]; then
    case $(MANPAGER=cat PAGER=cat timeout 20 nixos-rebuild --help 2>/dev/null </dev/null) in
    *--store-path*) echo "store-path=yes" ;;
    esac
  fi
  if [ -n "$1" ]; then
    system=$1${2:+/specialisation/$2}
    [ -x "$system/bin/switch-to-configuration" ] && echo "wanted=$(resolve "$system")"
    printKernel kernel-wanted "$system"
    [ -d "$1/specialisation" ] && for name in "$1"/specialisation/*; do
      [ -e "$name" ] && echo "specialisation=${name##*/}"
    done
  fi
  if load $live/state || load $kept/state; then
    show | while IFS= read -r line; do printf 'run-%s\n' "$line"; done
    if isActive $runUnit; then
      echo "run-alive=yes"
      now
      echo "run-left=$((${deadline:-$now} - now))"
      # A client that follows the run touches the file `seen` every second.
      seen=$(stat -c %Y $live/seen 2>/dev/null) && echo "run-seen=$(($(date +%s) - seen))"
    fi
  fi
  echo end=yes
}
