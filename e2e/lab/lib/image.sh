# shellcheck shell=bash disable=SC2154,SC2034
# The machines' root file system, built once and kept.

cache_dir() { echo "${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/nixbench/lab"; }

# recipes prints the folders with the recipes of the image. There are additional recipes for
# machines that can be nodes of Kubernetes, SLURM or Flux clusters, and for those that boot a real NixOS.
recipes() { echo "guest${kubernetes:+ guest-kubernetes}${slurm:+ guest-slurm}${flux:+ guest-flux}${nixos:+ guest-nixos}"; }

# image_key prints a hash of everything that the image depends on.
image_key() {
  (
    cd "$home" || exit
    dpkg --print-architecture 2>/dev/null || uname -m
    # shellcheck disable=SC2046 # a list of words
    find $(recipes) -type f -print0 | sort -z | xargs -0 stat -c '%n %a'
    # shellcheck disable=SC2046
    find $(recipes) -type f -print0 | sort -z | xargs -0 sha256sum
  ) | sha256sum | cut -c1-16
}

# remove_unused_images removes images that no command has asked for during a week. A younger
# one may be in use by the machines of a running lab.
remove_unused_images() {
  local used
  find "$1" -maxdepth 1 -name 'image-*.used' -mtime +7 | while read -r used; do
    rm -rf --one-file-system "${used%.used}" "$used"
  done
}

# build_image prints the image's folder, and builds it unless it is cached. A second process
# waits for the first one's build. The folder gets its name only when it is complete.
build_image() {
  local cache image work mirror options recipe hooks=() started=$SECONDS
  cache=$(cache_dir)
  image=$cache/image-$(image_key)
  [ -d "$image" ] && { : > "$image.used"; echo "$image"; return; }

  [ "$(id -u)" = 0 ] || die "only root can build the image"
  command -v mmdebstrap >/dev/null || die "mmdebstrap is missing; run: $home/lab install"
  mkdir -p "$cache"
  exec 8> "$cache/lock"
  flock -n 8 || { say "waiting for another process that builds an image"; flock -w 900 8 || die "another process has been building an image for 15 minutes"; }
  [ -d "$image" ] && { exec 8>&-; echo "$image"; return; }

  # This process holds the lock, so folders of other builds belong to builds that were killed.
  rm -rf --one-file-system "$cache"/building.*
  remove_unused_images "$cache"
  work=$(mktemp -d "$cache/building.XXXXXX")
  mirror=$(debian_mirror)
  [ -n "$mirror" ] || die "apt has no Debian source on this machine"
  say "building the image (about half a minute); log: $cache/build.log"
  (
    for recipe in $(recipes); do
      # shellcheck source=/dev/null
      . "$home/$recipe/recipe.sh"
      [ ! -e "$home/$recipe/customise.sh" ] || hooks+=(--customize-hook="$(printf '%q "$1"' "$home/$recipe/customise.sh")")
    done
    mapfile -t options < <(apt_options)
    # shellcheck disable=SC2086 # a list of words
    packages=$(printf '%s\n' $packages | paste -s -d ,)
    export TMPDIR=$work
    timeout 900 mmdebstrap --mode=root --variant=minbase --include="$packages" \
      --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
      --dpkgopt='path-exclude=/usr/share/doc/*' ${options[@]+"${options[@]}"} \
      "${hooks[@]}" \
      "$suite" "$work/image" "$mirror"
  ) > "$cache/build.log" 2>&1 < /dev/null || {
    rm -rf --one-file-system "$work"
    log_tail "$cache/build.log"
    die "the image could not be built"
  }
  chmod 755 "$work/image"
  : > "$image.used"
  mv -T "$work/image" "$image"
  rm -rf --one-file-system "$work"
  exec 8>&-
  say "built the image in $((SECONDS - started)) s"
  echo "$image"
}

# machine_trees prints the folders that are the layers of a machine's file system, the lowest
# first. Each path contains a hash of the content. Of several versions of Kubernetes the first
# one is the highest layer, so its programs are those in /usr/bin.
machine_trees() {
  local i parts
  build_image
  [ -z "$flux" ] || "$home/guest-flux/build" "${NIXBENCH_FLUX_SRC:-}" || exit
  [ -n "$kubernetes" ] || return 0
  for ((i = ${#kubernetes_versions[@]} - 1; i >= 0; i--)); do
    parts=$("$home/../kube/build" "${kubernetes_versions[i]}") || exit
    echo "$parts/root"
  done
}
