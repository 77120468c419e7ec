#!/bin/bash
# world.sh FOLDER IMAGE TIED: the first process of the lab's process namespace, in fresh
# mount, network, cgroup and IPC namespaces. It mounts the file systems that libvirtd
# sees, starts libvirtd, and then only waits: when this process ends, the kernel kills all
# processes of the lab and removes its mounts and network devices.
set -eu
dir=$1 image=$2 tied=$3
exec 7<&0 < /dev/null

ip link set lo up

# A /sys for the lab's network namespace. It hides the cgroups, so they are mounted again,
# as the lab's cgroup namespace sees them. libvirt-lxc does not work without them, and uses
# the first mount that it finds, so other mounts, such as those of a chroot, are unmounted.
awk '{ for (i = 7; $i != "-"; i++); if ($(i+1) ~ /^cgroup2?$/) print $5 }' /proc/self/mountinfo |
  while IFS= read -r at; do umount -l "$(printf %b "${at//\\/\\0}")" || true; done
mount -t sysfs -o nosuid,nodev,noexec sysfs /sys
if grep -qv '^0::' /proc/self/cgroup; then
  mount -t tmpfs -o mode=755 tmpfs /sys/fs/cgroup
  while IFS=: read -r _ controllers _; do
    case $controllers in
      '') at=unified type=cgroup2 options=nsdelegate ;;
      name=*) at=${controllers#name=} type=cgroup options=none,$controllers ;;
      *) at=$controllers type=cgroup options=$controllers ;;
    esac
    mkdir -p "/sys/fs/cgroup/$at"
    mount -t $type -o "$options" none "/sys/fs/cgroup/$at"
    [ $type = cgroup ] || unified=/sys/fs/cgroup/$at
  done < /proc/self/cgroup
else
  unified=/sys/fs/cgroup
  mount -t cgroup2 -o nsdelegate none "$unified"
fi
# Not in the root of the unified hierarchy: a cgroup with processes cannot delegate
# controllers.
mkdir -p "$unified/host"
echo $$ > "$unified/host/cgroup.procs"
read -r -a controllers < "$unified/cgroup.controllers" || true
for controller in "${controllers[@]}"; do
  echo "+$controller" > "$unified/cgroup.subtree_control" || true
done

# The paths of libvirt's folders are compiled in. Overlays on the host's folders keep the
# lab's files invisible to the host. They are in memory, because libvirt syncs each file.
mount -t tmpfs -o mode=700 tmpfs "$dir/host"
for folder in etc var/lib var/log var/cache; do
  layer=$dir/host/${folder//\//-}
  mkdir -p "$layer/upper" "$layer/work"
  mount -t overlay overlay -o "lowerdir=/$folder,upperdir=$layer/upper,workdir=$layer/work" "/$folder"
done
# An empty /run, without sockets of the host's libvirt and D-Bus services.
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/libvirt /run/lock /var/log/libvirt /var/lib/libvirt /var/cache/libvirt /etc/libvirt
mount --bind "$dir/libvirt" /run/libvirt
mount --bind "$dir/log" /var/log/libvirt
rm -rf /etc/libvirt/qemu/networks/autostart
cp "$dir"/conf/*.conf /etc/libvirt/

# A hypervisor's /dev. It has no /dev/kvm, which can exist without working, as in a virtual
# machine; without it libvirt uses emulation, and starts in a second. The kernel makes loop
# devices on demand only in its own /dev, so all of them are made here.
if [ -d "$dir/dev" ]; then
  mount -t tmpfs -o mode=755,nosuid tmpfs "$dir/dev"
  (
    cd "$dir/dev"
    mkdir pts shm net mqueue
    for node in null zero full random urandom tty kmsg fuse net/tun loop-control; do
      [ ! -e "/dev/$node" ] || cp -a "/dev/$node" "$node"
    done
    for ((i = 0; i < 256; i++)); do mknod -m 600 "loop$i" b 7 "$i"; done
    mount --rbind /dev/pts pts
    mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs shm
    ln -s pts/ptmx ptmx
    ln -s /proc/self/fd fd
    for i in 0,stdin 1,stdout 2,stderr; do ln -s "/proc/self/fd/${i%,*}" "${i#*,}"; done
  )
  mount --move "$dir/dev" /dev
fi

# Each machine's disk is an overlay: the image is the lower layer, the machine's changes are
# the upper one. An upper layer on a tmpfs is a disk that can be full; it exists as long as
# the lab, so reboots keep it. volatile: no sync, since disks need not survive a crash of the
# host.
while read -r machine _ _ disk; do
  at=$dir/machines/$machine
  mkdir -p "$at/disk" "$at/root"
  [ "$disk" = - ] || mount -t tmpfs -o "mode=755,size=$disk" tmpfs "$at/disk"
  mkdir -p "$at/disk/upper" "$at/disk/work"
  cp -R "$at/files/." "$at/disk/upper/"
  mount -t overlay overlay -o "lowerdir=$image,upperdir=$at/disk/upper,workdir=$at/disk/work,volatile" "$at/root"
done < "$dir/machines.table"

# If the QEMU driver is installed and the account that is compiled into it is missing,
# libvirtd ends at once, also when the configuration has another account.
grep -q ^libvirt-qemu: /etc/passwd || echo 'libvirt-qemu:x:64055:64055::/nonexistent:/usr/sbin/nologin' >> /etc/passwd
for group in kvm libvirt-qemu; do
  grep -q "^$group:" /etc/group || echo "$group:x:64055:" >> /etc/group
done

# keep_libvirtd starts libvirtd again when it has ended: tests kill it on purpose. It returns,
# which ends the lab, if libvirtd has run for less than two seconds.
keep_libvirtd() {
  local started status
  while :; do
    started=$SECONDS status=0
    libvirtd -p /run/libvirt/libvirtd.pid || status=$?
    echo "libvirtd ended with status $status"
    [ $((SECONDS - started)) -ge 2 ] || return 1
  done
}

# watch_controllers starts containers again whose controller process has ended without
# libvirtd noticing. On a busy host libvirt-lxc sometimes has no connection to the controller
# of a container. Then it does not learn that the container has ended for a reboot, reports it
# as running, and does not start it.
watch_controllers() {
  local pid name
  declare -A gone=()
  while sleep 1; do
    for name in $(timeout 10 virsh -q -c lxc:///system list --name 2>/dev/null); do
      pid=$(cat "/run/libvirt/lxc/$name.pid" 2>/dev/null) || pid=
      if [ -n "$pid" ] && kill -0 "$pid" 2>/dev/null; then
        gone[$name]=0
        continue
      fi
      gone[$name]=$((${gone[$name]:-0} + 1))
      # libvirtd itself may still start it.
      [ "${gone[$name]}" -ge 4 ] || continue
      gone[$name]=0
      echo "libvirtd reports $name as running, but its controller process has ended: starting it again"
      timeout 20 virsh -q -c lxc:///system destroy "$name" || true
      # Another lab may attach the loop device that libvirt has just found free.
      for _ in 1 2 3 4 5 6 7 8 9 10; do
        ! timeout 20 virsh -q -c lxc:///system start "$name" || break
        sleep 0.5
      done
    done
  done
}

# bash, as the first process, also reaps orphans.
virtlogd -p /run/libvirt/virtlogd.pid 7<&- &
keep_libvirtd 7<&- &
children=($!)
watch_controllers 7<&- &
# The process that the lab is tied to keeps the other end of the pipe open, and never writes.
if [ -n "$tied" ]; then
  cat <&7 > /dev/null &
  children+=($!)
fi
wait -n "${children[@]}"
