#!/bin/sh
# customise.sh ROOT: turn a guest into one that can be a node of a SLURM cluster.
set -eu
root=$1

# As on NixOS, the deployed system brings the units, the configuration, the key and the users of
# these programs. Those of Debian's packages are removed, so that a system cannot depend on them.
for unit in munge sackd slurmctld slurmd slurmdbd; do
  rm -f "$root/usr/lib/systemd/system/$unit.service" "$root"/etc/systemd/system/*/"$unit.service" "$root/etc/init.d/$unit"
done
rm -rf "$root/etc/munge" "$root/var/lib/munge" "$root/var/log/munge" "$root/etc/slurm" "$root/var/lib/slurm" "$root/var/log/slurm" "$root/etc/mysql" \
  "$root"/usr/lib/tmpfiles.d/munge* "$root"/usr/lib/tmpfiles.d/slurm* "$root"/usr/lib/sysusers.d/munge* "$root"/usr/lib/sysusers.d/slurm*
for user in munge slurm; do
  ! chroot "$root" id "$user" > /dev/null 2>&1 || chroot "$root" userdel "$user"
done
