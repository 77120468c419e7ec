# aside.sh contains functions that upload.sh uses. They keep a backup of replaced and removed keys in the folder $aside until
# the new system is permanent or rolled back.
#
#   N.path      the path of a key, or of the list of uploaded keys
#   N.was       the replaced file; missing if there was no file
#   restore     a script that restores all files and deletes the folder: upload.sh with its arguments
#   hold        keep the folder after the switch: the whole run may be rolled back
#   `settled`   the new system is permanent: only this run's client may restore the keys
#
# The node's script of package activate runs `restore` when it rolls back. Otherwise the
# script deletes the folder, or creates `settled` if there is a `hold`. The folder is in
# memory, like the keys in /run, and only root can read it.
#
# $asides is empty: make no backup, since there will be no rollback; "keep": until the
# switch has ended; "hold": until the run has ended; "add": like "hold", after the switch;
# "late": like "keep", after an upload with "keep".
#
# An existing backup of a file is not overwritten. It was made by an upload without a
# switch, so it contains the key of the running system.
# shellcheck disable=SC2154 # upload.sh sets variables, with read and eval
# shellcheck disable=SC2086,SC2046 # lists of files, see upload.sh
# shellcheck disable=SC2174 # the parent folder exists

# restore_backup restores all files of the backup. If no file has failed, it then deletes the backup. cp creates each file, and
# sets the owner and mode by the descriptor of the file and not by its path.
restore_backup() {
  [ -f "$aside/restore" ] || return 0
  list_backup
  find_unsafe "$backed" || return 1
  left=0
  for mark in $marks; do
    IFS= read -r path <"$mark" || continue
    was=${mark%.path}.was new=${path%/*}/.${path##*/}.nixbench-new
    if ! problem=$(check_folders "$path"); then
      echo "$path is not restored: $problem" >&2
      left=1
    elif ! exists "$was"; then
      rm -f -- "$new" "$path" || left=1
    elif ! cp --remove-destination -pP -- "$was" "$new" || ! mv -fT -- "$new" "$path"; then
      rm -f -- "$new"
      left=1
    fi
  done
  [ "$left" = 1 ] || rm -rf -- "$aside"
  return "$left"
}

# list_backup sets backed to the paths of the keys in the backup. It sets marks to the files N.path of the backup, which contain
# these paths.
list_backup() {
  backed='' marks=''
  set +f
  set -- "$aside"/*.path
  set -f
  for mark in "$@"; do
    [ ! -f "$mark" ] || ! IFS= read -r path <"$mark" || backed=$backed$path$nl marks=$marks$mark$nl
  done
}

make_backup_folder() {
  if [ ! -f "$aside/restore" ]; then
    make_folder "${aside%/*}" && mkdir -p -m 700 -- "$aside" &&
      printf "set -- restore '%s' '%s' %s ''\n%s" "$list" "$aside" "$asides" "$script" >"$aside/restore.new" &&
      mv -f -- "$aside/restore.new" "$aside/restore" || return 1
  fi
  case $asides in
  hold) : >"$aside/hold" ;;
  add) : >"$aside/hold" && : >"$aside/settled" ;;
  esac
}

# back_up adds the file PATH to the backup, unless the backup contains it. $backed contains the paths of all files in the backup.
back_up() { # PATH
  [ -n "$asides" ] && ! has_line "$backed" "$1" || return 0
  make_backup_folder || return 1
  while exists "$aside/$free.path" || exists "$aside/$free.was"; do free=$((free + 1)); done
  if is_file "$1"; then
    cp -pP -- "$1" "$aside/$free.was" || return 1
  elif [ -e "$1" ]; then
    return 0 # a folder is no key, and cannot become one
  fi
  printf '%s\n' "$1" >"$aside/$free.path" && backed=$backed$1$nl
}

begin_backup() {
  case $asides in
  '') ! exists "$aside" || rm -rf -- "$aside" ;;
  # Clean up after a nixbench that was killed. If the file `settled` exists, the switch of that nixbench is permanent, and the
  # whole backup is obsolete. Otherwise only the file `hold` is obsolete.
  keep | hold) if [ -e "$aside/settled" ]; then rm -rf -- "$aside"; else remove_files "$aside/hold"; fi ;;
  esac
  free=0
  list_backup
}
