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

# names_in ARCHIVE prints for each image what it is called in there, and its name; kind
# is what skopeo calls such an archive. New ones of docker save are both. Runtimes know images
# by their full names, which docker shortens.
names_in() {
  if tar -xOf "$1" --occurrence=1 manifest.json >"$work/manifest" 2>/dev/null; then
    kind=docker-archive
    jq -r 'def full: split("/") as $p
        | if ($p | length) == 1 then "docker.io/library/" + .
          elif ($p[0] | test("[.:]") or . == "localhost") then . else "docker.io/" + . end;
      .[].RepoTags[]? | "\(.) \(full)"' "$work/manifest"
  else
    kind=oci-archive
    tar -xOf "$1" --occurrence=1 index.json | jq -r '.manifests[].annotations // {}
      | .["org.opencontainers.image.ref.name"] as $ref
      | (.["io.containerd.image.name"] // $ref // empty) | select(contains("/")) | "\($ref // .) \(.)"'
  fi
}

load() {
  names_in "$1" >"$work/names" 2>"$work/output" || return
  if [ ! -s "$work/names" ]; then
    echo "$1 does not say what its images are called; save them with a name and a tag." >"$work/output"
    return 1
  fi
  case $RUNTIME in
  containerd)
    run ctr -n k8s.io images import "$1" || return
    # Else a full disk makes the kubelet delete what no registry has.
    while read -r _ name; do
      run ctr -n k8s.io images label "$name" io.cri-containerd.pinned=pinned || return
    done <"$work/names"
    ;;
  *)
    while read -r reference name; do
      run skopeo --insecure-policy copy --quiet "$kind:$1:$reference" "containers-storage:$name" || return
    done <"$work/names"
    ;;
  esac
}

# there MARK: CRI-O empties its storage when that was damaged, as by a power cut.
there() {
  case $RUNTIME in
  containerd) [ -e "$loaded/$1" ]; return ;;
  *) [ -s "$loaded/$1" ] || return ;;
  esac
  while read -r _ name; do
    skopeo inspect --raw "containers-storage:$name" >/dev/null 2>&1 || return
  done <"$loaded/$1"
}

# CRI-O has no marks on images. It is told by a list, which replaces the user's.
pin() {
  file=/etc/crio/crio.conf.d/50-nixbench-images.conf
  { printf '%s\n' "$PINNED" | tr ' ' '\n' && cut -d ' ' -f 2 "$work/all-names"; } | sort -u |
    jq -rRn '"[crio.image]\npinned_images = " + ([inputs | select(. != "")] | tojson)' >"$work/pinned" || return
  ! cmp -s "$work/pinned" "$file" || return 0
  mv "$work/pinned" "$file" && chmod 0644 "$file" && run systemctl reload crio.service
}

load_images() {
  mkdir -p "$loaded" || return
  : >"$work/all-names"
  while read -r archive; do
    if [ ! -e "$archive" ]; then
      echo "There is no $archive, which nixbench.kubernetes.images names." >"$work/output"
      return 1
    fi
    mark=$(mark_of "$archive")
    if ! there "$mark"; then
      tell importing "$archive"
      load "$archive" && cp "$work/names" "$loaded/.new" && mv "$loaded/.new" "$loaded/$mark" || return
    fi
    cat "$loaded/$mark" >>"$work/all-names"
  done <"$IMAGES"
  [ "$RUNTIME" = containerd ] || pin
}
