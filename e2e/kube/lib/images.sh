# shellcheck shell=bash disable=SC2154
# The images, from the programs.

# image FOLDER NAME:TAG [FLAG…]: make an image archive of a folder. The archive's name
# contains the image's tag, so that a folder can have the archives of several versions.
image() {
  local folder=$1 name=$2 file
  shift 2
  file=${name##*/}
  # Mount points for the runtime, and folders that programs expect.
  mkdir -p "$folder"/{dev,etc,proc,sys,run,tmp,var}
  chmod 1777 "$folder/tmp"
  "$work/bin/mkimage" -o "$root/usr/share/nixbench-kube/images/${file/:/-}.tar" -name "$name" "$@" "$folder"
  rm -rf --one-file-system "$folder"
}

build_images() {
  local program tree=$work/tree
  for program in kube-apiserver kube-controller-manager kube-scheduler etcd; do
    mkdir -p "$tree/usr/local/bin"
    ln "$work/bin/$program" "$tree/usr/local/bin/"
    image "$tree" "$(required_image "$program")"
  done

  mkdir -p "$tree"
  ln "$work/bin/coredns" "$tree/"
  image "$tree" "$(required_image coredns)" -entrypoint /coredns

  mkdir -p "$tree"
  ln "$work/bin/pause" "$tree/"
  # Also under the name of containerd 1.7's default.
  image "$tree" "$(required_image pause)" -entrypoint /pause -name registry.k8s.io/pause:3.8

  mkdir -p "$tree"
  ln "$work/bin/probe" "$tree/"
  image "$tree" localhost/probe:1 -entrypoint /probe

  proxy_tree "$tree"
  ln "$work/bin/kube-proxy" "$tree/usr/local/bin/"
  image "$tree" "$(required_image kube-proxy)"
}

# proxy_tree FOLDER fills a folder with iptables, nft and conntrack, which kube-proxy calls.
# The packages are only unpacked, so the links that their installation makes are added.
proxy_tree() {
  local tree=$1 name options
  mapfile -t options < <(apt_options)
  TMPDIR=$work timeout 600 mmdebstrap --mode=root --variant=extract --include=iptables,nftables,conntrack \
    --dpkgopt='path-exclude=/usr/share/*' ${options[@]+"${options[@]}"} \
    trixie "$tree" "$(debian_mirror)"
  rm -rf "${tree:?}"/{usr/share,usr/lib/*/gconv,var,dev,etc/apt,etc/dpkg}
  for name in ip{,6}tables{,-save,-restore}; do
    ln -sf xtables-nft-multi "$tree/usr/sbin/$name"
  done
  for name in bin sbin lib lib64; do
    [ -e "$tree/$name" ] || [ ! -d "$tree/usr/$name" ] || ln -s "usr/$name" "$tree/$name"
  done
  mkdir -p "$tree/usr/local/bin" "$tree/etc"
  echo 'root:x:0:0:root:/:/bin/sh' > "$tree/etc/passwd"
}
