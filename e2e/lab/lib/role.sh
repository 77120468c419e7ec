# shellcheck shell=bash disable=SC2154,SC2034
# Images from which a hypervisor makes machines, in the form of a role's image: one
# for containers and one for virtual machines, both from the machines' tree.

# role_image KIND prints the folder of the image, which is built unless it is cached.
role_image() {
  local kind=${1:-} trees folder cache work started=$SECONDS
  case $kind in container | vm) ;; *) usage_error "image wants container or vm" ;; esac
  [[ $size =~ ^[1-9][0-9]*[MG]$ ]] || usage_error "--size wants a size with M or G, not $size"
  check_needs role || exit 1
  trees=$(machine_trees)
  mapfile -t trees <<< "$trees"
  cache=$(cache_dir)
  # Named like the machines' tree, so that it is forgotten like that.
  folder=$cache/image-$kind-$(role_key "$kind" "${trees[@]}")
  [ ! -d "$folder" ] || { : > "$folder.used"; echo "$folder"; return; }

  exec 8> "$cache/lock"
  flock -w 900 8 || die "somebody else has been building an image for 15 minutes"
  if [ ! -d "$folder" ]; then
    rm -rf --one-file-system "$cache"/building.*
    work=$(mktemp -d "$cache/building.XXXXXX")
    say "building the image for a $kind (some seconds); log: $cache/build-$kind.log"
    mkdir "$work/image" "$work/root"
    # Not "if build": inside a condition the shell ignores failures.
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

# role_key KIND TREE... is a hash of all that decides what is in the image, but for
# the kernel: whichever is current when it is built.
role_key() {
  {
    echo "$size $*"
    cat "$home/lib/role.sh"
    [ "$1" != vm ] || cat "$home"/vm/*
  } | sha256sum | cut -c1-16
}

# file_system TREE FILE OPTIONS...: an ext4 file system without partitions, of which
# only what is used takes space.
file_system() {
  local tree=$1 file=$2
  shift 2
  truncate -s "$size" "$file"
  mke2fs -q -F -t ext4 -L root -m 0 -E lazy_itable_init=1,lazy_journal_init=1,nodiscard "$@" -d "$tree" "$file"
}

# build_container: whoever mounts it unmounts it, however the machine ends, so a
# journal would only be written for nothing.
build_container() {
  file_system "$1" "$2/image/disk.raw" -O ^has_journal
}

# build_vm: the same machine, with a kernel of its own, and without what makes its
# boot slow where a processor is emulated.
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
  # In the order in which they need each other.
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

# fetch_kernel FOLDER downloads the kernel's package of the guest's Debian. It is only
# unpacked: its scripts would want an initramfs.
fetch_kernel() {
  local mirror options suite
  mirror=$(debian_mirror)
  [ -n "$mirror" ] || die "apt has no Debian source on this machine"
  mapfile -t options < <(apt_options)
  suite=$(. "$home/guest/recipe.sh" && echo "$suite")
  # mmdebstrap knows how to make an apt for another release; no system is made.
  TMPDIR=$1 timeout 300 mmdebstrap --quiet --mode=root --variant=extract ${options[@]+"${options[@]}"} \
    --setup-hook="$(printf '%q "$1" %q' "$home/vm/fetch-kernel.sh" "$1")" "$suite" "$1/apt" "$mirror"
}
