# shellcheck shell=bash disable=SC2154,SC2034
# Images in the form of a role's image, from which a hypervisor makes machines: one for
# containers and one for virtual machines. Both contain the root file system of lab machines.

# role_image KIND prints the folder of the image, and builds it unless it is cached.
role_image() {
  local kind=${1:-} trees folder cache work started=$SECONDS
  case $kind in container | vm) ;; *) usage_error "usage: lab image container|vm" ;; esac
  [[ $size =~ ^[1-9][0-9]*[MG]$ ]] || usage_error "--size: expected a number with M or G, not $size"
  check_needs role || exit 1
  trees=$(machine_trees)
  mapfile -t trees <<< "$trees"
  cache=$(cache_dir)
  # Named like the image of lab machines, so that remove_unused_images removes it, too.
  folder=$cache/image-$kind-$(role_key "$kind" "${trees[@]}")
  [ ! -d "$folder" ] || { : > "$folder.used"; echo "$folder"; return; }

  exec 8> "$cache/lock"
  flock -w 900 8 || die "another process has been building an image for 15 minutes"
  if [ ! -d "$folder" ]; then
    rm -rf --one-file-system "$cache"/building.*
    work=$(mktemp -d "$cache/building.XXXXXX")
    say "building the image for a $kind (some seconds); log: $cache/build-$kind.log"
    mkdir "$work/image" "$work/root"
    # Not in a condition, inside of which the shell ignores failures.
    (set -e; merge_trees "$work" "${trees[@]}"; "build_$kind" "$work/root" "$work") > "$cache/build-$kind.log" 2>&1 < /dev/null &
    wait $! || {
      rm -rf --one-file-system "$work"
      log_tail "$cache/build-$kind.log"
      die "the image for a $kind could not be built"
    }
    : > "$folder.used"
    mv -T "$work/image" "$folder"
    rm -rf --one-file-system "$work"
    say "built the image for a $kind in $((SECONDS - started)) s"
  fi
  exec 8>&-
  echo "$folder"
}

merge_trees() {
  local work=$1 tree
  shift
  for tree in "$@"; do cp -a --reflink=auto "$tree/." "$work/root"; done
}

# role_key KIND TREE... prints a hash of everything that the image depends on, except for
# the kernel, which is Debian's current one when the image is built.
role_key() {
  {
    echo "$size $*"
    cat "$home/lib/role.sh"
    [ "$1" != vm ] || cat "$home"/vm/*
  } | sha256sum | cut -c1-16
}

# file_system TREE FILE OPTIONS...: make an ext4 file system without partitions, in a
# sparse file.
file_system() {
  local tree=$1 file=$2
  shift 2
  truncate -s "$size" "$file"
  mke2fs -q -F -t ext4 -L root -m 0 -E lazy_itable_init=1,lazy_journal_init=1,nodiscard "$@" -d "$tree" "$file"
}

# build_container makes the image of a container. It needs no journal: the host unmounts the
# file system whenever the container ends.
build_container() {
  [ -z "$kubernetes" ] || preload_images "$1"
  file_system "$1" "$2/image/disk.raw" -O ^has_journal
}

# preload_images TREE: import the image archives into the store of the tree's containerd, with the tree's programs, and
# remove them. So a machine has the images when it boots, like the node images of clouds; machines that are made from
# overlays import them when containerd starts (lab-images). Layers stay packed: the runtime unpacks an image when a
# container first needs it. Archives stay for CRI-O; that of the probe stays, because tests import it.
preload_images() {
  local root=$1
  [ ! -e "$root/usr/bin/crio" ] || return 0
  mkdir -p "$root/run/preload"
  cat > "$root/run/preload/config.toml" << END
version = 2
root = "/var/lib/containerd"
state = "/run/preload/state"
[grpc]
address = "/run/preload/socket"
END
  # containerd and its mounts end with the namespaces. Its CRI plugin adds an entry with the ID of each image.
  # shellcheck disable=SC2016
  unshare --mount --net --pid --fork --kill-child sh -euc '
    root=$1
    mount -t proc proc "$root/proc"
    chroot "$root" containerd --config /run/preload/config.toml --log-level warn &
    containerd=$!
    images() { chroot "$root" ctr --address /run/preload/socket -n k8s.io images "$@"; }
    tries=0
    until images list -q; do
      tries=$((tries + 1))
      [ "$tries" -lt 100 ] || exit 1
      sleep 0.1
    done
    for archive in "$root"/usr/share/nixbench-kube/images/*.tar; do
      images import --local --no-unpack "${archive#"$root"}"
      [ "${archive##*/}" = probe-1.tar ] || rm "$archive"
    done
    sleep 1
    images list
    kill "$containerd"
    wait "$containerd" || :
  ' sh "$root"
  rm -rf "$root/run/preload" "$root/run/containerd" "$root/run/lock" "$root/var/lib/containerd/io.containerd.grpc.v1.introspection" # the latter has the machine's id
}

# build_vm makes the image of a virtual machine: a kernel is added, and what makes the boot
# slow when the processor is emulated is removed.
build_vm() {
  local root=$1 work=$2 version module
  fetch_kernel "$work"
  dpkg-deb -x "$work"/linux-image-*.deb "$root"
  version=$(ls "$root/usr/lib/modules")
  mv "$root/boot/vmlinuz-$version" "$work/image/kernel"
  rm -f "$root"/boot/*
  chroot "$root" depmod -a "$version"
  "$home/vm/trim.sh" "$root"

  mkdir -p "$work/initrd"/{bin,dev,proc,root}
  cp "$(command -v busybox)" "$work/initrd/bin/busybox"
  install -m 755 "$home/vm/init" "$work/initrd/init"
  # In the order of their dependencies.
  for module in drivers/block/virtio_blk net/core/failover drivers/net/net_failover drivers/net/virtio_net \
    drivers/firmware/qemu_fw_cfg drivers/acpi/button drivers/input/evdev; do
    xz -dc "$root/usr/lib/modules/$version/kernel/$module.ko.xz" > "$work/initrd/${module##*/}.ko"
    echo "${module##*/}" >> "$work/initrd/modules"
  done
  (cd "$work/initrd" && find . | busybox cpio -o -H newc) > "$work/image/initrd"
  grep -v '^#' "$home/vm/cmdline" | tr '\n' ' ' | sed 's/ $//' > "$work/image/cmdline"

  file_system "$root" "$work/disk.raw" -J size=16
  qemu-img convert -f raw -O qcow2 "$work/disk.raw" "$work/image/disk.qcow2"
}

# fetch_kernel FOLDER downloads the kernel package of the guest's Debian release. build_vm
# only unpacks it, because its scripts would make an initramfs.
fetch_kernel() {
  local mirror options suite
  mirror=$(debian_mirror)
  [ -n "$mirror" ] || die "apt has no Debian source on this machine"
  mapfile -t options < <(apt_options)
  # shellcheck source=/dev/null
  suite=$(. "$home/guest/recipe.sh" && echo "$suite")
  # mmdebstrap configures an apt for another release. It downloads only this package here.
  TMPDIR=$1 timeout 300 mmdebstrap --quiet --mode=root --variant=extract ${options[@]+"${options[@]}"} \
    --setup-hook="$(printf '%q "$1" %q' "$home/vm/fetch-kernel.sh" "$1")" "$suite" "$1/apt" "$mirror"
}
