# shellcheck shell=sh disable=SC2034
# What a machine has in addition that cloud-init tells who it is, and that tells its
# hypervisor its address.

packages="$packages
  cloud-init e2fsprogs qemu-guest-agent
"
