# Load images into the container runtime. The records of loaded images are in the folder of the runtime, so
# that both are deleted together.

# image_record ARCHIVE: print the name of the record for an archive. The name is a hash. For a file in the Nix store, it is made
# from the path, which identifies the content. For another file, it is made from path, size and time.
image_record() {
  case $1 in
  /nix/store/*) printf '%s' "$1" ;;
  *) printf '%s %s' "$1" "$(stat -L -c '%s %Y' "$1")" ;;
  esac | sha256sum | cut -d ' ' -f 1
}

# list_image_names ARCHIVE: print for each image its name in the archive and its full name, and set $archive_kind to skopeo's word
# for the format of the archive. Recent archives of docker save have two formats. docker abbreviates the names of images, but
# container runtimes need full names.
list_image_names() {
  if tar -xOf "$1" --occurrence=1 manifest.json >"$work/manifest" 2>/dev/null; then
    archive_kind=docker-archive
    jq -r 'def full: split("/") as $p
        | if ($p | length) == 1 then "docker.io/library/" + .
          elif ($p[0] | test("[.:]") or . == "localhost") then . else "docker.io/" + . end;
      .[].RepoTags[]? | "\(.) \(full)"' "$work/manifest"
  else
    archive_kind=oci-archive
    tar -xOf "$1" --occurrence=1 index.json | jq -r '.manifests[].annotations // {}
      | .["org.opencontainers.image.ref.name"] as $ref
      | (.["io.containerd.image.name"] // $ref // empty) | select(contains("/")) | "\($ref // .) \(.)"'
  fi
}

# load_archive ARCHIVE: load the images in an archive, and write their names to $work/names.
load_archive() {
  local reference name
  list_image_names "$1" >"$work/names" 2>"$work/output" || return
  if [ ! -s "$work/names" ]; then
    set_output "$1 does not contain the names of its images; save them with a name and a tag."
    return 1
  fi
  case $RUNTIME in
  containerd)
    run_logged ctr -n k8s.io images import "$1" || return
    # Pin each image: if the disk is full, the kubelet deletes images that are not pinned, and no registry may have them.
    while read -r _ name; do
      run_logged ctr -n k8s.io images label "$name" io.cri-containerd.pinned=pinned || return
    done <"$work/names"
    ;;
  *)
    while read -r reference name; do
      run_logged skopeo --insecure-policy copy --quiet "$archive_kind:$1:$reference" "containers-storage:$name" || return
    done <"$work/names"
    ;;
  esac
}

# is_loaded RECORD reports whether the images of an archive are loaded. For CRI-O, it looks for the images themselves, because
# CRI-O deletes its storage after damage, for example by a power cut.
is_loaded() {
  local name
  case $RUNTIME in
  containerd)
    [ -e "$image_records/$1" ]
    return
    ;;
  *) [ -s "$image_records/$1" ] || return ;;
  esac
  while read -r _ name; do
    skopeo inspect --raw "containers-storage:$name" >/dev/null 2>&1 || return
  done <"$image_records/$1"
}

# pin_crio_images: write CRI-O's list of pinned images, because CRI-O cannot pin single images. The written file replaces the list
# in the hive's settings, so it also contains the images of that list.
pin_crio_images() {
  local file=/etc/crio/crio.conf.d/50-nixbench-images.conf
  { printf '%s\n' "$PINNED" | tr ' ' '\n' && cut -d ' ' -f 2 "$work/all-names"; } | sort -u |
    jq -rRn '"[crio.image]\npinned_images = " + ([inputs | select(. != "")] | tojson)' >"$work/pinned" || return
  ! cmp -s "$work/pinned" "$file" || return 0
  mv "$work/pinned" "$file" && chmod 0644 "$file" && run_logged systemctl reload crio.service
}

# load_images: load the archives of nixbench.kubernetes.images that are not loaded yet.
load_images() {
  local archive record
  case $RUNTIME in
  containerd) image_records=/var/lib/containerd/nixbench-images ;;
  *) image_records=/var/lib/containers/nixbench-images ;;
  esac
  mkdir -p "$image_records" || return
  : >"$work/all-names"
  while read -r archive; do
    if [ ! -e "$archive" ]; then
      set_output "There is no $archive, which nixbench.kubernetes.images names."
      return 1
    fi
    record=$(image_record "$archive") || return
    if ! is_loaded "$record"; then
      report_phase importing "$archive"
      load_archive "$archive" && cp "$work/names" "$image_records/.new" && mv "$image_records/.new" "$image_records/$record" || return
    fi
    cat "$image_records/$record" >>"$work/all-names"
  done <"$IMAGES"
  [ "$RUNTIME" = containerd ] || pin_crio_images
}
