# shellcheck shell=bash disable=SC2034
# Variables and functions that the demo's scripts share.

here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
top=$(dirname "$here")
state=$here/.state
# Each checkout has a demo of its own.
name=demo-$(printf %s "$top" | sha256sum | cut -c1-6)
lab=("$top/e2e/lab/lab" --name "$name")
export NIX_CONFIG='build-users-group =
experimental-features = nix-command flakes
substituters =
sandbox = false'

say() { printf '\n\033[1m%s\033[0m\n' "$*" >&2; }
die() {
  printf 'demo: %s\n' "$*" >&2
  exit 1
}

# stoppable COMMAND...: runs a long step in a session of its own. An interrupt, or the failure of the step, ends all processes
# of the session: some programs in it ignore Ctrl-C, and others have process groups of their own.
stoppable() {
  local pid status=0
  setsid "$@" &
  pid=$!
  trap 'pkill -TERM -s "$pid" || true; { wait "$pid"; } 2> /dev/null || true; say "stopped; run it again to go on"; exit 130' INT TERM HUP
  wait "$pid" || status=$?
  trap - INT TERM HUP
  [ $status = 0 ] || pkill -TERM -s "$pid" || true
  return $status
}

# quietly NAME COMMAND...: runs COMMAND with its output in a log file, and prints the end of the
# log only if COMMAND fails.
quietly() {
  local log=$state/$1.log
  shift
  "$@" > "$log" 2>&1 && return
  tail -n 20 "$log" >&2
  die "$* failed; its whole output is in $log"
}

# prepare checks this computer, and installs the packages that are missing. The first step of each demo.
prepare() {
  [ "$(id -u)" = 0 ] || die "starting a hypervisor requires root, even in namespaces; run it with sudo"
  [ -e /etc/debian_version ] || die "this script works on Debian 12 only; on other systems follow docs/tutorial.md"
  local go
  go=$(go env GOVERSION 2> /dev/null) || die "go is not on PATH; install it from https://go.dev/dl"
  go=${go#go1.}
  [ "${go%%[!0-9]*}" -ge 21 ] || die "go 1.$go is too old, such as Debian's; install 1.21 or later from https://go.dev/dl"
  mkdir -p "$state/bin"
  printf '*\n' > "$state/.gitignore"

  say "1. Installing missing Debian packages (up to half a minute)"
  quietly packages "$top/e2e/install-deps"
  quietly lab "$top/e2e/lab/lab" install
}
