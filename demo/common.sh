# shellcheck shell=bash disable=SC2034
# What the parts of the demo agree on.

here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
top=$(dirname "$here")
state=$here/.state
# Two checkouts are two demos.
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
