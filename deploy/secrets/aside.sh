# aside.sh is the first half of upload.sh: what an upload replaces or removes is kept
# in the folder $aside until it is known whether the new system stays.
#
#   HASH.path   the path of a key, or of the list
#   HASH.was    what was there; without it there was nothing
#   restore     puts everything back, and removes the folder
#   hold        the folder outlives the switch: the run may still be taken back
#   settled     the new system stays, so that only this run's client may put them back
#
# The node's half of package activate runs `restore` by itself when it goes back, and
# else removes the folder, or makes it `settled` if it has a `hold`. The folder is in
# memory, as keys in /run are, and nobody's but root's.
#
# $asides is "drop": nothing can be undone any more, so there is nothing to keep;
# "keep": until the switch is through; "hold": until the run is; "add": the switch is
# through, but not the run.
#
# What is in the folder wins over what is there now: it is from before an upload whose
# switch never came, and the system is still the one from then.
# shellcheck disable=SC2154 # upload.sh sets variables

restore_script() {
  cat <<'RESTORE'
export LC_ALL=C
PATH=/run/current-system/sw/bin:/nix/var/nix/profiles/default/bin:/usr/sbin:/usr/bin:/sbin:/bin:$PATH
umask 077
aside=${0%/*} failed=0
for mark in "$aside"/*.path; do
  [ -f "$mark" ] && IFS= read -r path <"$mark" || continue
  was=${mark%.path}.was new=${path%/*}/.${path##*/}.nixbench-new
  rm -f -- "$new"
  if [ ! -e "$was" ] && [ ! -L "$was" ]; then
    rm -f -- "$path" || failed=1
  elif ! cp -pP -- "$was" "$new" || ! mv -fT -- "$new" "$path"; then
    rm -f -- "$new"
    failed=1
  fi
done
[ "$failed" = 1 ] || rm -rf -- "$aside"
exit "$failed"
RESTORE
}

put_back() { [ ! -f "$aside/restore" ] || sh "$aside/restore" </dev/null; }

aside_folder() {
  if [ ! -f "$aside/restore" ]; then
    dir=${aside%/*}
    folder && mkdir -p -m 700 -- "$aside" && restore_script >"$aside/restore.new" && mv -f -- "$aside/restore.new" "$aside/restore" || return 1
  fi
  case $asides in
  hold) : >"$aside/hold" ;;
  add) : >"$aside/hold" && : >"$aside/settled" ;;
  esac
}

# A subshell, since it has the same names for other things.
put_aside() ( # PATH
  [ "$asides" != drop ] || exit 0
  mark=$(printf %s "$1" | sha256sum) && aside_folder || exit 1
  mark=$aside/${mark%% *}
  [ ! -e "$mark.path" ] || exit 0
  if [ -f "$1" ] || [ -L "$1" ]; then
    rm -f -- "$mark.was" && cp -pP -- "$1" "$mark.was" || exit 1
  elif [ -e "$1" ]; then
    exit 0 # a folder is no key, and cannot become one
  fi
  printf '%s\n' "$1" >"$mark.path"
)

begin_aside() {
  case $asides in
  drop) rm -rf -- "$aside" ;;
  # A run whose client was killed before it could take it back left it settled; one
  # that was killed earlier, held for nobody.
  keep | hold) if [ -e "$aside/settled" ]; then rm -rf -- "$aside"; else rm -f -- "$aside/hold"; fi ;;
  esac
}
