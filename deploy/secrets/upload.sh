# upload.sh MODE LIST ASIDE ASIDES: makes the keys of this node equal to the list on
# stdin. MODE is "apply", or "plan", which changes nothing. LIST is the file with the
# paths of all uploaded keys, one per line. ASIDE and ASIDES are explained in aside.sh.
#
# Three more modes use no stdin: "undo" restores the replaced keys from the backup if
# the switch was not executed, "restore" also after the switch, and "forget" deletes
# the backup.
#
# stdin    a line "COUNT KEEP", then COUNT keys: path, owner, group, mode, early or
#          late, hash, size, a line each; then KEEP paths of all keys in the hive
# stdout   a greeting; for each key, by number: same, adjusted or send, and deferred
#          if the owner does not exist yet; "stale PATH"; then "next"
# stdin    for each key to send, the seven lines again, and its content;
#          then the line "prune" or "keep"
# stdout   for each of these keys "done N" or "failed N MESSAGE"; "removed PATH"; "end"
#
# A key or its hash must never be an argument of a program, since other users can see
# arguments. printf, read and test are built into the shell.
# shellcheck disable=SC2154 # read_key and read_line set variables by name
export LC_ALL=C
PATH=/run/current-system/sw/bin:/nix/var/nix/profiles/default/bin:/usr/sbin:/usr/bin:/sbin:/bin:$PATH
umask 077
mode=$1 list=$2 aside=$3 asides=$4
tmp='' undo=''
trap '[ -z "$tmp" ] || rm -f -- "$tmp"; [ -z "$undo" ] || restore_backup' EXIT
trap 'exit 1' HUP INT TERM

one_line() { tr '\n' ' ' | cut -c 1-400; }

fail_early_end() {
  echo "the input ended early" >&2
  exit 1
}
read_line() { IFS= read -r "$1" || fail_early_end; }

read_key() {
  read_line path && read_line user && read_line group && read_line perms && read_line when && read_line hash && read_line size
  dir=${path%/*}
  dir=${dir:-/}
  temporary=$dir/.${path##*/}.nixbench-new
}

is_listed() { [ -f "$list" ] && grep -Fxq -e "$1" -- "$list"; }

write_list() { # reads the lines from stdin
  (umask 022 && mkdir -p -- "${list%/*}") && tmp=$list.new && cat >"$tmp" && sync -- "$tmp" && mv -fT -- "$tmp" "$list" && tmp=
}

has_content() { # FILE
  [ -f "$1" ] && [ ! -L "$1" ] || return 1
  sum=$(sha256sum <"$1") || return 1
  [ "${sum%% *}" = "$hash" ]
}

is_number() { case $1 in *[!0-9]*) return 1 ;; esac }
is_known() { # DATABASE NAME
  is_number "$2" && return 0
  getent "$1" "$2" >/dev/null 2>&1 || grep -q "^$2:" "/etc/$1" 2>/dev/null
}
owners_known() { is_known passwd "$user" && is_known group "$group"; }

# has_permissions reports whether the file has the desired owner and mode.
has_permissions() { # FILE
  found=$(stat -c '%U %u %G %g %a' -- "$1") || return 1
  read -r by_user uid by_group gid bits <<FOUND
$found
FOUND
  { [ "$user" = "$by_user" ] || [ "$user" = "$uid" ]; } &&
    { [ "$group" = "$by_group" ] || [ "$group" = "$gid" ]; } && [ "$perms" = "$bits" ]
}

# set_permissions sets the owner before the mode, since the mode may allow a group to read.
set_permissions() { # FILE
  if [ "$when" = early ] && ! owners_known; then
    chmod -- 600 "$1"
  else
    chown -h -- "$user:$group" "$1" && chmod -- "$perms" "$1"
  fi
}

make_folder() {
  [ ! -d "$dir" ] || return 0
  if [ "$dir" = /run/keys ]; then # with the mode and group of NixOS
    mkdir -p -- /run && mkdir -m 750 -- "$dir" || return 1
    ! is_known group keys || chgrp -- keys "$dir"
  else
    (umask 022 && mkdir -p -- "$dir")
  fi
}

compare_key() { # NUMBER
  deferred=
  if [ "$when" = early ] && ! owners_known; then deferred=" deferred"; fi
  if ! is_listed "$path" || ! has_content "$path"; then
    echo "send $1$deferred"
  elif has_permissions "$path" || { [ -n "$deferred" ] && [ "$(stat -c %a -- "$path")" = 600 ]; }; then
    # deferred: this script leaves the owner unchanged, and the activation sets the desired owner. Back up the key
    # now, so that the backup has the old owner.
    [ -z "$deferred" ] || [ "$mode" = plan ] || back_up "$path"
    echo "same $1$deferred"
  elif [ "$mode" = plan ]; then
    echo "adjusted $1$deferred"
  elif said=$({ back_up "$path" && set_permissions "$path"; } 2>&1); then
    echo "adjusted $1$deferred"
  else
    echo "failed $1 $(printf '%s' "$said" | one_line)"
    failed=1
  fi
}

# receive_content writes a key's content to $tmp. After an error it still reads the whole content, so
# that the next key is read from its start.
receive_content() {
  head -c "$size" | {
    make_folder && rm -f -- "$tmp" && (set -C && exec cat >"$tmp") && exit 0
    cat >/dev/null
    exit 1
  }
}

store_key() { # NUMBER
  tmp=$temporary
  if said=$({ receive_content && check_content && set_permissions "$tmp" && { sync -- "$tmp" || sync; } && back_up "$path" && mv -fT -- "$tmp" "$path"; } 2>&1); then
    tmp=
    written="$written$path
"
    echo "done $1"
  else
    rm -f -- "$tmp"
    tmp=
    echo "failed $1 $(printf '%s' "$said" | one_line)"
    failed=1
  fi
}
check_content() { has_content "$tmp" || {
  echo "its content is incomplete" >&2
  return 1
}; }

print_stale() { # prints the listed paths that are not in $keep
  [ -f "$list" ] || return 0
  while IFS= read -r old; do
    case "
$keep" in *"
$old
"*) ;; *) printf '%s\n' "$old" ;; esac
  done <"$list"
}

# is_file reports whether a listed path is a file or link. A missing key needs no removal, and a
# folder is never a key.
is_file() { [ -f "$1" ] || [ -L "$1" ]; }
sort_lines() { grep . | sort -u; }

case $mode in
undo)
  [ -e "$aside/settled" ] || restore_backup
  exit
  ;;
restore)
  restore_backup
  exit
  ;;
forget)
  rm -rf -- "$aside"
  exit
  ;;
esac

echo "nixbench-keys 1"
read_line counts
count=${counts% *} kept=${counts#* }
if [ "$mode" = apply ]; then
  begin_backup
  # If the upload fails, there will be no switch: restore the backup at exit.
  case $asides in keep | hold) undo=yes ;; esac
fi
i=0 paths='' failed=''
while [ "$i" -lt "$count" ]; do
  read_key
  paths="$paths$path
"
  [ "$mode" = plan ] || rm -f -- "$temporary" 2>/dev/null
  compare_key "$i"
  i=$((i + 1))
done
i=0 keep=''
while [ "$i" -lt "$kept" ]; do
  read_line path
  keep="$keep$path
"
  i=$((i + 1))
done
print_stale | while IFS= read -r old; do ! is_file "$old" || printf 'stale %s\n' "$old"; done
echo next
[ "$mode" = apply ] || exit 0

# The list is written before the keys, so that every uploaded key is in it.
read_line sends
before=$([ ! -f "$list" ] || cat -- "$list") || exit 1
if [ "$sends" -gt 0 ]; then
  back_up "$list" || exit 1
  printf '%s\n%s' "$before" "$paths" | sort_lines | write_list || exit 1
fi
written=''
while [ "$sends" -gt 0 ]; do
  read_line i
  read_key
  store_key "$i"
  sends=$((sends - 1))
done
if [ -n "$failed" ]; then
  printf '%s\n%s' "$before" "$written" | sort_lines | write_list || exit 1
fi

read_line last
stale=$(print_stale)
if [ "$last" = prune ] && [ -z "$failed" ] && [ -n "$stale" ]; then
  back_up "$list" || exit 1
  printf '%s\n' "$stale" | while IFS= read -r old; do
    rm -f -- "${old%/*}/.${old##*/}.nixbench-new"
    if is_file "$old"; then
      back_up "$old" || exit 1
      rm -f -- "$old" && printf 'removed %s\n' "$old" || exit 1
    fi
  done || exit 1
  printf '%s\n' "$stale" | grep -Fxv -f - -- "$list" | write_list || exit 1
fi
[ -n "$failed" ] || undo=''
echo end
