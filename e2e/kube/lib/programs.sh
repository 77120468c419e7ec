# shellcheck shell=bash disable=SC2154
# The programs, from their Go modules.

# go_build FOLDER TARGET [FLAG…] PACKAGE…: build main packages with the go.mod and
# go.sum in src/FOLDER, or in FOLDER if this is an absolute path. GOPROXY and caches are the user's; other settings are fixed, so
# that the result does not depend on them. The build has a low priority, because it uses
# all processors for minutes, and a time limit. Compilers that hardly collect garbage, use one
# thread each and write no data for debuggers need 25 to 45 % less processor time for the same
# instructions.
go_build() {
  local folder=$1 target=$2 started=$SECONDS
  shift 2
  (
    cd "$home/src" && cd "$folder" || exit
    export CGO_ENABLED=${cgo:-0} GOWORK=off GOGC=off GOMEMLIMIT=1GiB GOFLAGS=
    timeout -k 10 2700 nice -n 10 go build -v -mod=readonly -trimpath -buildvcs=false -gcflags="all=-dwarf=false -c=1" -o "$target" "$@"
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
  go_build "$part" "$bin/" -ldflags "$ldflags" \
    k8s.io/kubernetes/cmd/{kubeadm,kubelet,kubectl,kube-apiserver,kube-controller-manager,kube-scheduler,kube-proxy}
  go_build "$part" "$bin/etcd" -ldflags '-s -w' go.etcd.io/etcd/server/v3
  go_build "$part" "$bin/etcdctl" -ldflags '-s -w' go.etcd.io/etcd/etcdctl/v3
  build_coredns
  go_build parts "$bin/" -ldflags '-s -w' ./...

  for program in kubeadm kubelet kubectl etcd etcdctl; do
    ln "$bin/$program" "$root/$share/bin/$version/$program"
    ln "$bin/$program" "$root/usr/bin/$program"
  done
}

# build_coredns builds CoreDNS with only the plugins that programs.go names, because the libraries for clouds take minutes,
# and with Kubernetes' own client library, which no longer has a field that CoreDNS sets to its default.
build_coredns() {
  local source=$work/coredns
  cp -R --no-preserve=mode "$(cd "$folder" && GOWORK=off GOFLAGS='' go list -find -f '{{.Module.Dir}}' github.com/coredns/coredns/coremain)" "$source"
  sed -i '/RetryOnError: *false,/d' "$source/plugin/kubernetes/object/informer.go"
  printf 'package plugin\n\nimport (\n%s\n)\n' "$(grep coredns/plugin/ "$folder/programs.go")" > "$source/core/plugin/zplugin.go"
  cp "$folder"/go.{mod,sum} "$source/"
  go mod edit -module=github.com/coredns/coredns -droprequire=github.com/coredns/coredns "$source/go.mod"
  go_build "$source" "$work/bin/coredns" -ldflags '-s -w' .
}

# required_image NAME prints the image of that name, with its tag, that this kubeadm requires.
required_image() {
  "$work/bin/kubeadm" config images list --kubernetes-version "$version" | grep -E "/$1:"
}
