# shellcheck shell=bash disable=SC2154,SC2034
# The programs, packages and kernel features that the host needs, and how to install them.

# needs WHAT...: print a line for each requirement: a command or a file, and the package that
# has it. Without arguments these are the requirements of machines. "hypervisor" adds those of
# virtual machines, and "role" those of building images for machines.
needs() {
  local multiarch
  multiarch=$(gcc -print-multiarch 2>/dev/null || echo "$(uname -m)-linux-gnu")
  cat <<EOF
libvirtd libvirt-daemon
virtlogd libvirt-daemon
/usr/lib/libvirt/libvirt_lxc libvirt-daemon-driver-lxc
/usr/lib/$multiarch/libvirt/connection-driver/libvirt_driver_lxc.so libvirt-daemon-driver-lxc
virsh libvirt-clients
dnsmasq dnsmasq-base
iptables iptables
ip iproute2
ssh openssh-client
ssh-keygen openssh-client
unshare util-linux
nsenter util-linux
setsid util-linux
flock util-linux
mmdebstrap mmdebstrap
nix nix-bin
/usr/share/keyrings/debian-archive-keyring.gpg debian-archive-keyring
EOF
  [[ " $* " != *" hypervisor "* ]] || cat <<EOF
qemu-system-$(uname -m) qemu-system-$(if [ "$(uname -m)" = x86_64 ]; then echo x86; else echo arm; fi)
/usr/lib/$multiarch/libvirt/connection-driver/libvirt_driver_qemu.so libvirt-daemon-driver-qemu
/usr/share/$(if [ "$(uname -m)" = x86_64 ]; then echo OVMF ovmf; else echo AAVMF qemu-efi-aarch64; fi)
EOF
  [[ " $* " != *" role "* ]] || cat <<EOF
qemu-img qemu-utils
mke2fs e2fsprogs
busybox busybox-static
xz xz-utils
EOF
}

# check_needs WHAT... prints all requirements that are missing, and fails if there are any.
check_needs() {
  local thing package missing=() packages=()
  while read -r thing package; do
    case $thing in
      /*) [ -e "$thing" ] && continue ;;
      *) command -v "$thing" >/dev/null && continue ;;
    esac
    missing+=("$thing (package $package)")
    packages+=("$package")
  done < <(needs "$@")
  [ ${#packages[@]} -eq 0 ] || missing+=("to get these packages: $home/lab install; the PATH was $PATH")

  if [ "$(id -u)" != 0 ]; then
    missing+=("root: namespaces, mounts and cgroups are made directly")
  else
    check_kernel
    [[ " $* " != *" hypervisor "* ]] || [ -e /dev/loop-control ] ||
      missing+=("loop devices in the kernel (modprobe loop): containers boot from file systems in files")
  fi
  [ ${#missing[@]} -gt 0 ] || return 0
  say "this host lacks what the lab needs:"
  printf '  - %s\n' "${missing[@]}" >&2
  return 1
}

# check_kernel appends to the list of check_needs what the kernel, or the container that
# this host is, does not allow.
check_kernel() {
  local controller
  grep -qw overlay /proc/filesystems || modprobe overlay 2>/dev/null ||
    missing+=("overlayfs in the kernel")
  if ! command -v unshare >/dev/null || ! command -v ip >/dev/null; then
    return 0
  fi
  unshare --mount --net --pid --cgroup --ipc --fork true 2>/dev/null ||
    { missing+=("the right to make mount, network, process and cgroup namespaces"); return 0; }
  unshare --net sh -c 'ip link add nb0 type bridge && ip link add nb1 type veth peer name nb2' 2>/dev/null ||
    missing+=("bridge and veth devices in the kernel")
  [ -n "$(cgroup_mount '')" ] ||
    { missing+=("a mounted cgroup2 hierarchy (mount -t cgroup2 none /sys/fs/cgroup/unified)"); return 0; }
  for controller in cpuacct memory devices; do
    [ -n "$(cgroup_mount "$controller")" ] || unified_host ||
      missing+=("the cgroup controller $controller, mounted (libvirt-lxc starts nothing without it)")
  done
}

inotify_limit=/proc/sys/fs/inotify/max_user_instances

# await_inotify COUNT waits until enough inotify instances are free for that many Kubernetes
# nodes; without them, programs on the nodes fail with "too many open files". Labs of other
# tests release their instances when they end. A worker uses 14, a control plane 26.
await_inotify() {
  local deadline=$((SECONDS + 180)) free reported=''
  while :; do
    free=$(($(cat $inotify_limit) - $({ find /proc/[0-9]*/fd -lname anon_inode:inotify 2>/dev/null || true; } | wc -l)))
    [ $free -lt $(($1 * 20)) ] || return 0
    [ -n "$reported" ] || say "waiting for other labs to end: $free inotify instances are free, $1 nodes need about $(($1 * 20)) (raise the limit with: $home/lab install)"
    reported=yes
    [ $SECONDS -lt $deadline ] || { say "not waiting any longer; programs may fail with too many open files"; return 0; }
    sleep 1
  done
}

# install_needs installs the packages that are missing, from the mirror of this machine's apt,
# and raises the limit of inotify instances of the running kernel.
install_needs() {
  local package packages=()
  [ "$(id -u)" = 0 ] || die "only root can install packages"
  for package in $(needs hypervisor role | cut -d' ' -f2 | sort -u); do
    dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed ||
      packages+=("$package")
  done
  if [ ${#packages[@]} -gt 0 ]; then
    say "installing ${packages[*]}"
    apt-cache show "${packages[0]}" >/dev/null 2>&1 || apt-get update
    # Recommended packages would bring a system-wide libvirtd and dnsmasq.
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${packages[@]}"
  fi
  # Kubernetes watches many files, and the limit is for all machines together: their root is one user.
  if [ "$(cat $inotify_limit)" -lt 512 ]; then
    say "raising $inotify_limit to 512"
    { echo 512 > $inotify_limit; } 2>/dev/null || say "it cannot be raised: few Kubernetes nodes can be up at once"
  fi
  check_needs hypervisor role
}
