#!/bin/sh
# customise.sh ROOT: turn a guest into one that can boot a real NixOS from its system profile.
set -eu
root=$1
here=$(dirname "$(readlink -f "$0")")

# NixOS replaces /usr/bin/env and files in /etc by links into packages. A package that links back
# to the same file would be a loop, so it links to these copies.
copies=$root/usr/lib/nixbench-nixos
mkdir -p "$copies"
cp "$root/usr/bin/env" "$copies/env"
cp "$root/etc/ssl/certs/ca-certificates.crt" "$copies/ca-certificates.crt"

cp -R "$here/files/." "$root/"

# The stage 2 of NixOS activates the system, not lab-init.
sed -i '/^    boot_system$/d' "$root/usr/sbin/lab-init"
if grep -q '^ *boot_system$' "$root/usr/sbin/lab-init"; then
  echo "lab-init still activates the system" >&2
  exit 1
fi
ln -sf /usr/lib/nixbench-nixos/init "$root/usr/sbin/init"
