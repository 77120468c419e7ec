# shellcheck shell=bash disable=SC2154
# The programs, from their Go modules.

# go_build FOLDER TARGET [FLAG…] PACKAGE…: build main packages with the go.mod and
# go.sum in src/FOLDER, or in FOLDER if this is an absolute path. GOPROXY and caches are the user's; other settings are fixed, so
# that the result does not depend on them. The build has a low priority, because it uses
# all processors for minutes, and a time limit.
go_build() {
  local folder=$1 target=$2 started=$SECONDS
  shift 2
  (
    cd "$home/src" && cd "$folder" || exit
    export CGO_ENABLED=${cgo:-0} GOWORK=off GOFLAGS=
    timeout -k 10 2700 nice -n 10 go build -mod=readonly -trimpath -buildvcs=false -o "$target" "$@"
  )
  echo "$folder: $((SECONDS - started)) s"
}

# build_programs builds all programs into $work/bin, and links those of a node's file
# system into $root/usr.
build_programs() {
  local package number=${version#v} ldflags='-s -w' program share=usr/share/nixbench-kube
  local bin=$work/bin
  mkdir -p "$root/$share/bin/$version"
  # kubeadm compares the versions that its programs report.
  for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
    ldflags+=" -X $package.gitVersion=$version -X $package.gitMajor=${number%%.*}"
    ldflags+=" -X $package.gitMinor=$(cut -d. -f2 <<< "$number") -X $package.gitTreeState=clean"
    ldflags+=" -X $package.gitCommit=0000000000000000000000000000000000000000 -X $package.buildDate=1970-01-01T00:00:00Z"
  done
  # kubeadm first: source_of asks it which versions of etcd and CoreDNS it requires.
  go_build "kubernetes-$version" "$bin/" -ldflags "$ldflags" \
    k8s.io/kubernetes/cmd/{kubeadm,kubelet,kubectl,kube-apiserver,kube-controller-manager,kube-scheduler,kube-proxy}
  go_build "$(source_of etcd)" "$bin/etcd" -ldflags '-s -w' go.etcd.io/etcd/server/v3
  go_build "$(source_of etcd)" "$bin/etcdctl" -ldflags '-s -w' go.etcd.io/etcd/etcdctl/v3
  go_build "$(source_of coredns)" "$bin/coredns" -ldflags '-s -w' github.com/coredns/coredns
  go_build parts "$bin/" -ldflags '-s -w' ./...

  for program in kubeadm kubelet kubectl etcd etcdctl; do
    ln "$bin/$program" "$root/$share/bin/$version/$program"
    ln "$bin/$program" "$root/usr/bin/$program"
  done
}

# required_image NAME prints the image of that name, with its tag, that this kubeadm requires.
required_image() {
  "$work/bin/kubeadm" config images list --kubernetes-version "$version" | grep -E "/$1:"
}

# source_of NAME prints the folder with that program's go.mod.
source_of() {
  local image
  image=$(required_image "$1")
  # Tags of etcd's images end with a dash and the number of the image's build.
  image=${image##*:}
  printf '%s-v%s\n' "$1" "$(sed 's/^v//; s/-[0-9]*$//' <<< "$image")"
}
