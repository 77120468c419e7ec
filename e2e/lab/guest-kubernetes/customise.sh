#!/bin/sh
# customise.sh ROOT: turn a guest into one that can be a Kubernetes node.
set -eu
root=$1
here=$(dirname "$(readlink -f "$0")")

# As on NixOS, only units of the deployed system may run. Debian's units and configuration
# files are removed, so that a system cannot depend on them.
rm -rf "$root"/usr/lib/systemd/system/containerd.service "$root"/etc/systemd/system/*/containerd.service \
  "$root/etc/containerd" "$root/etc/containers" "$root/etc/cni"

cp -R "$here/files/." "$root/"
