# shellcheck shell=sh disable=SC2034
# What the guest image is made of. The image's key in the cache is a hash of
# this whole folder, so any change here makes a new image.

suite=trixie

# No recommended packages: without libpam-systemd an SSH login does not start a
# user manager, which would cost more time than everything else in the login.
packages='
  systemd systemd-sysv dbus udev
  openssh-server sudo
  nix-bin nix-setup-systemd
  iproute2 iputils-ping procps kmod
  ca-certificates curl zstd
'
