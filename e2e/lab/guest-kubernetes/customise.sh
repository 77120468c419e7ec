#!/bin/sh
# customise.sh ROOT: what makes a guest one that can be a Kubernetes node.
set -eu
root=$1
here=$(dirname "$(readlink -f "$0")")

# As on NixOS, only what a system brings may run: no unit and no configuration of
# Debian's is there to be taken for it, or to stay when it is gone.
rm -rf "$root"/usr/lib/systemd/system/containerd.service "$root"/etc/systemd/system/*/containerd.service \
  "$root/etc/containerd" "$root/etc/containers" "$root/etc/cni"

cp -R "$here/files/." "$root/"
