# shellcheck shell=sh
# The half of package activate that runs on the node, as root. Plain sh
# with coreutils, util-linux, systemd and Nix; values arrive as arguments.
#
#   inspect PATH SPEC WITH  what the node says of itself; changes nothing
#   dry PATH SPEC           what a switch would do; changes nothing
#   start RUN GOAL …        starts a run and follows it
#   follow RUN LINES        follows a run that was started before
#   confirm RUN LINES       we can still get in, right after the switch
#   confirm-again RUN LINES we can still get in: the run may be made permanent
#   abort RUN LINES         go back now
#   forget RUN              a reboot cut the run off: that was its end
#   reboot                  reboots, once this command has ended
#
# The rest is called by systemd: `supervise` is the run itself, `perform` one call
# of switch-to-configuration, `recover` what happens if the run is killed.
set -u
umask 022
PATH=/run/current-system/sw/bin:/nix/var/nix/profiles/default/bin:/run/wrappers/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH

live=/run/nixbench/activate       # of this boot: script, state, log
kept=/var/lib/nixbench/activate   # the state once more, and what was deployed
roots=/nix/var/nix/gcroots/nixbench
profile=/nix/var/nix/profiles/system
current=/run/current-system
booted=/run/booted-system
bootId=/proc/sys/kernel/random/boot_id
keysAside=/run/keys/.nixbench-before # what an upload put aside, see package secrets
lists=/run/nixos                  # what switch-to-configuration still wanted to do
runUnit=nixbench-activate.service
switchUnit=nixbench-switch.service
# nixos-rebuild puts its switch into a unit of its own.
rebuildUnit=nixos-rebuild-switch-to-configuration.service

die() { printf '%s\n' "$*" >&2; exit 1; }
resolve() { readlink -e "$1" 2>/dev/null || :; }

# The wall clock may jump during a switch, seconds since the boot do not.
now() { read -r up _ </proc/uptime; now=${up%.*}; }

# Whether a unit runs. Who cannot ask assumes that it does.
alive() {
  active=$(timeout 10 systemctl show --property ActiveState --value "$1" 2>/dev/null) || return 0
  case $active in active | activating | deactivating | reloading) return 0 ;; esac
  return 1
}

# --- the state of a run: one name=value per line ---

names='run goal path spec to from was wasPath armed settle activator generation phase deadline outcome reason code broken still jobs failedBefore boot time'
clear() { for name in $names; do eval "$name="; done; }

load() { # FILE
  clear
  [ -r "$1" ] || return 1
  while IFS='=' read -r name value; do
    case " $names " in *" $name "*) eval "$name=\$value" ;; esac
  done <"$1"
}

show() { for name in $names; do eval "printf '%s=%s\n' $name \"\$$name\""; done; }

save() {
  time=$(date +%s)
  show >"$live/state.new" && mv "$live/state.new" "$live/state" &&
    cp "$live/state" "$kept/state.new" && mv "$kept/state.new" "$kept/state"
}
