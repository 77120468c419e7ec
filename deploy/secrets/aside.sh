# aside.sh is the first part of upload.sh. It keeps a backup of replaced and removed keys in
# the folder $aside until the new system is permanent or rolled back.
#
#   HASH.path   the path of a key, or of the list
#   HASH.was    the replaced file; missing if there was none
#   restore     a script that restores everything and deletes the folder
#   hold        keep the folder after the switch: the whole run may be rolled back
#   `settled`   the new system is permanent: only this run's client may restore the keys
#
# The node's script of package activate runs `restore` when it rolls back. Otherwise it
# deletes the folder, or creates `settled` if there is a `hold`. The folder is in memory,
# like the keys in /run, and only root can read it.
#
# $asides is "drop": make no backup, since there will be no rollback; "keep": until the
# switch has ended; "hold": until the run has ended; "add": like "hold", after the switch.
#
# An existing backup of a file is not overwritten: it is from before an upload without a
# switch, and belongs to the system that is still running.
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

# put_aside backs up a file. It is a subshell, since it uses variables of the caller.
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
  # Left by a killed client: with `settled`, its switch is permanent, so the backup is obsolete.
  # Otherwise only the hold is obsolete.
  keep | hold) if [ -e "$aside/settled" ]; then rm -rf -- "$aside"; else rm -f -- "$aside/hold"; fi ;;
  esac
}
