# shellcheck shell=bash disable=SC2154,SC2034
# Parts that only some machines need.

# build_cri_o builds CRI-O, and pinns, which makes namespaces for it. conmon, runc and
# skopeo are Debian's. CRI-O is built without C: it needs no library, and applies no
# seccomp profiles.
build_cri_o() {
  local source
  go_build "$part" "$root/usr/bin/crio" -ldflags '-s -w' \
    -tags containers_image_openpgp,containers_image_ostree_stub,exclude_graphdriver_btrfs \
    github.com/cri-o/cri-o/cmd/crio
  source=$(cd "$home/src/$part" && GOWORK=off GOFLAGS='' go list -mod=readonly -m -f '{{.Dir}}' github.com/cri-o/cri-o)
  gcc -std=c99 -Os -s -static -o "$root/usr/bin/pinns" "$source"/pinns/src/*.c
}

# build_flannel builds the image of the daemon, whose backend "udp" is in C, and the CNI
# plugin, from the last release of the standard plugins that had it.
build_flannel() {
  local tree=$work/tree version=${part#flannel-} cni=("$home"/src/flannel-cni-*)
  cgo=1 go_build "$part" "$work/bin/flanneld" -tags netgo,osusergo \
    -ldflags "-s -w -linkmode external -extldflags -static -X github.com/flannel-io/flannel/pkg/version.Version=$version" \
    github.com/flannel-io/flannel
  mkdir -p "$root/usr/lib/cni"
  go_build "$(basename "${cni[0]}")" "$root/usr/lib/cni/flannel" -ldflags '-s -w' \
    github.com/containernetworking/plugins/plugins/meta/flannel
  go_build parts "$work/bin/" -ldflags '-s -w' ./mkimage

  # flanneld calls iptables or nft, and an init container of its pod runs cp.
  proxy_tree "$tree"
  mkdir -p "$tree/opt/bin"
  ln "$work/bin/flanneld" "$tree/opt/bin/"
  install -m 755 "$(command -v busybox)" "$tree/usr/bin/busybox"
  ln -s busybox "$tree/usr/bin/cp"
  image "$tree" "ghcr.io/flannel-io/flannel:$version"
}

# build_scheduler_plugins builds the image of a kube-scheduler with the plugins of scheduler-plugins, such as Coscheduling.
build_scheduler_plugins() {
  local tree=$work/tree
  mkdir -p "$tree/bin"
  go_build "$part" "$tree/bin/kube-scheduler" -ldflags '-s -w' sigs.k8s.io/scheduler-plugins/cmd/scheduler
  go_build parts "$work/bin/" -ldflags '-s -w' ./mkimage
  image "$tree" "registry.k8s.io/scheduler-plugins/kube-scheduler:${part#scheduler-plugins-}"
}

# build_kwok builds the image of kwok, whose nodes are only objects of the API.
build_kwok() {
  local tree=$work/tree
  mkdir -p "$tree/usr/local/bin"
  go_build "$part" "$tree/usr/local/bin/kwok" -ldflags '-s -w' sigs.k8s.io/kwok/cmd/kwok
  go_build parts "$work/bin/" -ldflags '-s -w' ./mkimage
  image "$tree" "registry.k8s.io/kwok/kwok:${part#kwok-}" -entrypoint /usr/local/bin/kwok
}

# build_volcano builds the images of Volcano that the manifest of the source names.
build_volcano() {
  local tree=$work/tree program tag
  tag=$(sed -n 's|.*image: docker.io/volcanosh/vc-scheduler:||p' "$folder/installer/volcano-development.yaml")
  mkdir -p "$work/volcano"
  go_build "$folder" "$work/volcano/" -ldflags '-s -w' ./cmd/scheduler ./cmd/controller-manager ./cmd/webhook-manager
  go_build parts "$work/bin/" -ldflags '-s -w' ./mkimage
  for program in scheduler controller-manager webhook-manager; do
    mkdir -p "$tree"
    mv "$work/volcano/$program" "$tree/vc-$program"
    image "$tree" "docker.io/volcanosh/vc-$program:$tag" -entrypoint "/vc-$program"
  done
}
