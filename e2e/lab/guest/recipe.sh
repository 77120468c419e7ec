# shellcheck shell=sh disable=SC2034
# The packages of the guest image. The image's key in the cache is a hash of
# this whole folder, so after any change here the image is built again.

suite=trixie

# As on NixOS, logins are sessions of systemd-logind (libpam-systemd comes with the
# rest), and the root of a deployment is the daemon's trusted user.
packages='
  systemd systemd-sysv dbus udev
  openssh-server sudo iptables
  nix-bin nix-setup-systemd
  iproute2 iputils-ping procps kmod
  ca-certificates curl zstd
'
