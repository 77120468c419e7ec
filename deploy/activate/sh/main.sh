# shellcheck shell=bash
dry() { # PATH SPEC
  "$1${2:+/specialisation/$2}/bin/switch-to-configuration" dry-activate </dev/null 2>&1
}

case $1 in
inspect | dry | start | follow | supervise | recover | forget) "$@" ;;
confirm | confirm-again | confirm-return | abort) answer "$@" ;;
reboot) rebootSoon ;;
*) die "unknown command $1" ;;
esac
