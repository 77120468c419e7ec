# shellcheck shell=bash
dry() { # PATH SPEC
  "$1${2:+/specialisation/$2}/bin/switch-to-configuration" dry-activate </dev/null 2>&1
}

case $1 in
inspect | dry | start | follow | supervise | recover | forget) "$@" ;;
confirm | confirm-again | abort) answer "$@" ;;
# The delay gives this command and its connection time to end before the reboot.
reboot) systemd-run --quiet --collect --no-ask-password --on-active=500ms --timer-property=AccuracySec=10ms systemctl reboot ;;
*) die "unknown command $1" ;;
esac
