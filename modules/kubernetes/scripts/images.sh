# Load images. What was loaded is remembered where the runtime keeps them, so that both
# go together.
case $RUNTIME in
containerd) loaded=/var/lib/containerd/nixbench-images ;;
*) loaded=/var/lib/containers/nixbench-images ;;
esac

# A path in the store says what is in it; of another file, size and time do.
mark_of() {
  case $1 in
  /nix/store/*) printf '%s' "$1" ;;
  *) printf '%s %s' "$1" "$(stat -L -c '%s %Y' "$1")" ;;
  esac | sha256sum | cut -d ' ' -f 1
}

names_in() {
  tar -xOf "$1" manifest.json 2>/dev/null | jq -r '.[].RepoTags[]?' 2>/dev/null && return
  tar -xOf "$1" index.json 2>/dev/null | jq -r '.manifests[].annotations | .["io.containerd.image.name"] // .["org.opencontainers.image.ref.name"] // empty'
}

load() {
  case $RUNTIME in
  containerd)
    run ctr -n k8s.io images import "$1" || return
    # Else a full disk makes the kubelet delete what no registry has.
    names_in "$1" | while read -r name; do
      ctr -n k8s.io images label "$name" io.cri-containerd.pinned=pinned >/dev/null 2>&1
    done
    ;;
  *)
    names_in "$1" >"$work/names"
    while read -r name; do
      kind=docker-archive
      tar -tf "$1" manifest.json >/dev/null 2>&1 || kind=oci-archive
      run skopeo --insecure-policy copy "$kind:$1:$name" "containers-storage:$name" || return
    done <"$work/names"
    ;;
  esac
}

load_images() {
  mkdir -p "$loaded" || return
  while read -r archive; do
    if [ ! -e "$archive" ]; then
      echo "There is no $archive, which nixbench.kubernetes.images names." >"$work/output"
      return 1
    fi
    mark=$(mark_of "$archive")
    [ ! -e "$loaded/$mark" ] || continue
    tell importing "$archive"
    load "$archive" || return
    : >"$loaded/$mark"
  done <"$IMAGES"
}
