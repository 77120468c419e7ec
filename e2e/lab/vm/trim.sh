#!/bin/sh
# trim.sh ROOT: remove what makes a boot slow when the processor is emulated. Debian's
# default takes 37 s from power-on to SSH, the result less than half of that.
set -eu
cd "$1"
units=etc/systemd/system

mask() { for unit in "$@"; do ln -sfn /dev/null "$units/$unit"; done; }

# Units that are masked for containers, but that a virtual machine needs.
for unit in systemd-udevd.service systemd-udev-trigger.service systemd-sysctl.service systemd-modules-load.service; do
  rm -f "$units/$unit"
done
mask modprobe@.service kmod-static-nodes.service systemd-udev-load-credentials.service systemd-sysusers.service \
  systemd-tmpfiles-setup-dev-early.service systemd-tmpfiles-setup-dev.service systemd-tmpfiles-clean.timer \
  systemd-journal-flush.service systemd-hostnamed.socket systemd-hostnamed.service systemd-remount-fs.service \
  systemd-user-sessions.service systemd-creds.socket systemd-sysext.socket systemd-pcrphase.service \
  systemd-bless-boot.service systemd-networkd-persistent-storage.service run-lock.mount tmp.mount \
  systemd-initctl.socket
# No sysctls and modules beyond the kernel's defaults, until a system is deployed that sets some.
rm -f usr/lib/sysctl.d/*.conf etc/sysctl.conf etc/sysctl.d/* etc/modules-load.d/*
mkdir -p $units/systemd-sysctl.service.d $units/systemd-logind.service.d
printf '[Unit]\nConditionDirectoryNotEmpty=/etc/sysctl.d\n' > $units/systemd-sysctl.service.d/lab.conf
# logind is needed only for the power button, so it may start after sshd.
printf '[Unit]\nAfter=ssh.service\n' > $units/systemd-logind.service.d/lab.conf
# No nologin file: systemd-user-sessions, which would remove it, is masked.
ln -sfn /dev/null etc/tmpfiles.d/systemd-nologin.conf
# Each generator is a process at boot, and none is needed.
mkdir -p etc/systemd/system-generators
for generator in usr/lib/systemd/system-generators/*; do
  ln -sfn /dev/null "etc/systemd/system-generators/${generator##*/}"
done
printf '[Journal]\nStorage=volatile\nRateLimitIntervalSec=0\n' > etc/systemd/journald.conf.d/lab.conf
mkdir -p $units/systemd-udev-trigger.service.d
# Trigger only the network interface and the power button, an input device. The initial RAM
# disk has loaded the other modules.
printf '[Service]\nExecStart=\nExecStart=-udevadm trigger --action=add --subsystem-match=net --subsystem-match=input\n' \
  > $units/systemd-udev-trigger.service.d/lab.conf

# A login without a session of systemd-logind.
sed -i '/pam_systemd/d' etc/pam.d/common-session

# Filters of system calls and namespaces are slow when each call is emulated.
for unit in systemd-networkd systemd-udevd systemd-journald; do
  mkdir -p $units/$unit.service.d
  cat > $units/$unit.service.d/lab.conf <<'X'
[Service]
SystemCallFilter=
SystemCallArchitectures=
RestrictAddressFamilies=
MemoryDenyWriteExecute=no
ProtectSystem=no
ProtectHome=no
ProtectKernelModules=no
ProtectControlGroups=no
ProtectKernelLogs=no
ProtectClock=no
ProtectProc=default
ProtectHostname=no
RestrictNamespaces=no
PrivateMounts=no
X
done
touch etc/.updated var/.updated
