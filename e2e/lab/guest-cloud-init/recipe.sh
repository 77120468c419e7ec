# shellcheck shell=sh disable=SC2034
# Additional packages of machines that get their name and keys from cloud-init, and report
# their address to the hypervisor by QEMU's guest agent.

packages="$packages
  cloud-init e2fsprogs qemu-guest-agent
"
