#!/bin/sh
# customise.sh ROOT: turn a new Debian tree into the lab's guest, which has everything
# of a NixOS machine that a deployment uses.
set -eu
root=$1
here=$(dirname "$(readlink -f "$0")")

cp -R "$here/files/." "$root/"
chown -R 0:0 "$root/etc/sudoers.d" "$root/etc/ssh/sshd_config.d"

# As on NixOS, a login runs no scripts for a message of the day and looks for no mail. Debian's scripts would be counted
# as programs that nixbench starts on a node.
sed -i 's/^\(session.*pam_motd\)/#\1/; s/^\(session.*pam_mail\)/#\1/' "$root/etc/pam.d/sshd"
chmod 440 "$root/etc/sudoers.d/lab"

# deploy: sudo without a password. askpass: sudo asks for the password below, which
# is not secret: the README has it.
chroot "$root" useradd -m -s /bin/bash deploy
chroot "$root" useradd -m -s /bin/bash askpass
echo 'askpass:correct horse' | chroot "$root" chpasswd

mkdir -p "$root/nix/store" "$root/nix/var/nix/profiles/per-user" "$root/nix/var/nix/gcroots" \
  "$root/boot" "$root/etc/ssh/authorized_keys.d" "$root/var/log/journal"

# Each machine makes its own machine-id, and the lab makes its host keys.
: > "$root/etc/machine-id"
: > "$root/etc/fstab"
rm -f "$root"/etc/ssh/ssh_host_* "$root/var/lib/dbus/machine-id" "$root/etc/hostname" "$root/etc/resolv.conf"
: > "$root/etc/resolv.conf"

chroot "$root" systemctl -q enable systemd-networkd.service ssh.service nix-daemon.socket nixbench-lab-boot.service
chroot "$root" systemctl -q disable nix-daemon.service systemd-networkd-wait-online.service
chroot "$root" systemctl -q set-default multi-user.target

# Units that a container does not need, that slow its boot, or that would change the host.
chroot "$root" systemctl -q mask \
  systemd-sysctl.service systemd-udevd.service systemd-udev-trigger.service \
  systemd-modules-load.service systemd-random-seed.service \
  systemd-hwdb-update.service systemd-journal-catalog-update.service systemd-update-done.service \
  systemd-pstore.service systemd-network-generator.service ldconfig.service \
  systemd-ask-password-wall.path systemd-ask-password-console.path \
  getty.target console-getty.service getty@.service serial-getty@.service container-getty@.service \
  apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer fstrim.timer e2scrub_all.timer \
  sys-kernel-debug.mount sys-kernel-tracing.mount sys-kernel-config.mount sys-fs-fuse-connections.mount \
  dev-hugepages.mount dev-mqueue.mount proc-sys-fs-binfmt_misc.automount

# Lab machines install no packages, so apt's lists and caches are not needed.
rm -rf "$root"/etc/apt/sources.list "$root"/etc/apt/sources.list.d/* "$root"/var/lib/apt/lists/* \
  "$root"/var/cache/apt/*.bin "$root"/var/log/apt "$root"/var/log/*.log "$root"/var/cache/debconf/*-old
