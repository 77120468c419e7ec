# upload.sh MODE LIST ASIDE ASIDES: makes the keys of this node equal to the list on
# stdin. MODE is "apply", or "plan", which changes nothing. LIST is the file with the
# paths of all uploaded keys, one per line. ASIDE and ASIDES are explained in aside.sh.
#
# Three more modes use no stdin: "undo" restores the backup of replaced keys if the
# switch did not take place, "restore" restores it also after the switch, and "forget"
# deletes it.
#
# stdin    a line "COUNT KEEP", then COUNT keys: path, owner, group, mode, early or
#          late, hash, size, a line each; then KEEP paths of all keys in the hive
# stdout   a greeting; for each key, by number: same, adjusted or send, and deferred
#          if the owner does not exist yet; "stale PATH"; then "next"
# stdin    for each key to send, the seven lines again, and its content;
#          then the line "prune" or "keep"
# stdout   "done N" or "failed N MESSAGE" for each of them; "removed PATH"; "end"
#
# A key or its hash must never be an argument of a program, since other users can see
# arguments. printf, read and test are built into the shell.
# shellcheck disable=SC2154 # read_key and line set variables by name
export LC_ALL=C
PATH=/run/current-system/sw/bin:/nix/var/nix/profiles/default/bin:/usr/sbin:/usr/bin:/sbin:/bin:$PATH
umask 077
mode=$1 list=$2 aside=$3 asides=$4
tmp='' undo=''
trap '[ -z "$tmp" ] || rm -f -- "$tmp"; [ -z "$undo" ] || put_back' EXIT
trap 'exit 1' HUP INT TERM

one_line() { tr '\n' ' ' | cut -c 1-400; }

lost() {
  echo "the input ended early" >&2
  exit 1
}
line() { IFS= read -r "$1" || lost; }

read_key() {
  line path && line user && line group && line perms && line when && line hash && line size
  dir=${path%/*}
  dir=${dir:-/}
  temporary=$dir/.${path##*/}.nixbench-new
}

listed() { [ -f "$list" ] && grep -Fxq -e "$1" -- "$list"; }

write_list() { # its lines come from stdin
  (umask 022 && mkdir -p -- "${list%/*}") && tmp=$list.new && cat >"$tmp" && sync -- "$tmp" && mv -fT -- "$tmp" "$list" && tmp=
}

has_content() { # FILE
  [ -f "$1" ] && [ ! -L "$1" ] || return 1
  sum=$(sha256sum <"$1") || return 1
  [ "${sum%% *}" = "$hash" ]
}

number() { case $1 in *[!0-9]*) return 1 ;; esac }
known() { # DATABASE NAME
  number "$2" && return 0
  getent "$1" "$2" >/dev/null 2>&1 || grep -q "^$2:" "/etc/$1" 2>/dev/null
}
owners_known() { known passwd "$user" && known group "$group"; }

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

folder() {
  [ ! -d "$dir" ] || return 0
  if [ "$dir" = /run/keys ]; then # as NixOS has it
    mkdir -p -- /run && mkdir -m 750 -- "$dir" || return 1
    ! known group keys || chgrp -- keys "$dir"
  else
    (umask 022 && mkdir -p -- "$dir")
  fi
}

compare() { # NUMBER
  deferred=
  if [ "$when" = early ] && ! owners_known; then deferred=" deferred"; fi
  if ! listed "$path" || ! has_content "$path"; then
    echo "send $1$deferred"
  elif has_permissions "$path" || { [ -n "$deferred" ] && [ "$(stat -c %a -- "$path")" = 600 ]; }; then
    # The activation will change its owner.
    [ -z "$deferred" ] || [ "$mode" = plan ] || put_aside "$path"
    echo "same $1$deferred"
  elif [ "$mode" = plan ]; then
    echo "adjusted $1$deferred"
  elif said=$({ put_aside "$path" && set_permissions "$path"; } 2>&1); then
    echo "adjusted $1$deferred"
  else
    echo "failed $1 $(printf '%s' "$said" | one_line)"
    failed=1
  fi
}

# receive reads the whole content in any case, so that the next key is read from its start.
receive() {
  head -c "$size" | {
    folder && rm -f -- "$tmp" && (set -C && exec cat >"$tmp") && exit 0
    cat >/dev/null
    exit 1
  }
}

store() { # NUMBER
  tmp=$temporary
  if said=$({ receive && check && set_permissions "$tmp" && { sync -- "$tmp" || sync; } && put_aside "$path" && mv -fT -- "$tmp" "$path"; } 2>&1); then
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
check() { has_content "$tmp" || {
  echo "its content is incomplete" >&2
  return 1
}; }

stale() { # prints the listed paths that are not in $keep
  [ -f "$list" ] || return 0
  while IFS= read -r old; do
    case "
$keep" in *"
$old
"*) ;; *) printf '%s\n' "$old" ;; esac
  done <"$list"
}

# ours reports whether a listed path is a file or link. A missing key needs no removal, and a
# folder is never a key.
ours() { [ -f "$1" ] || [ -L "$1" ]; }
tidy() { grep . | sort -u; }

case $mode in
undo)
  [ -e "$aside/settled" ] || put_back
  exit
  ;;
restore)
  put_back
  exit
  ;;
forget)
  rm -rf -- "$aside"
  exit
  ;;
esac

echo "nixbench-keys 1"
line counts
count=${counts% *} kept=${counts#* }
if [ "$mode" = apply ]; then
  begin_aside
  # If the upload fails, there will be no switch: restore the backup at exit.
  case $asides in keep | hold) undo=yes ;; esac
fi
i=0 paths='' failed=''
while [ "$i" -lt "$count" ]; do
  read_key
  paths="$paths$path
"
  [ "$mode" = plan ] || rm -f -- "$temporary" 2>/dev/null
  compare "$i"
  i=$((i + 1))
done
i=0 keep=''
while [ "$i" -lt "$kept" ]; do
  line path
  keep="$keep$path
"
  i=$((i + 1))
done
stale | while IFS= read -r old; do ! ours "$old" || printf 'stale %s\n' "$old"; done
echo next
[ "$mode" = apply ] || exit 0

# The list is written before the keys, so that every uploaded key is in it.
line sends
before=$([ ! -f "$list" ] || cat -- "$list") || exit 1
if [ "$sends" -gt 0 ]; then
  put_aside "$list" || exit 1
  printf '%s\n%s' "$before" "$paths" | tidy | write_list || exit 1
fi
written=''
while [ "$sends" -gt 0 ]; do
  line i
  read_key
  store "$i"
  sends=$((sends - 1))
done
if [ -n "$failed" ]; then
  printf '%s\n%s' "$before" "$written" | tidy | write_list || exit 1
fi

line last
left=$(stale)
if [ "$last" = prune ] && [ -z "$failed" ] && [ -n "$left" ]; then
  put_aside "$list" || exit 1
  printf '%s\n' "$left" | while IFS= read -r old; do
    rm -f -- "${old%/*}/.${old##*/}.nixbench-new"
    if ours "$old"; then
      put_aside "$old" || exit 1
      rm -f -- "$old" && printf 'removed %s\n' "$old" || exit 1
    fi
  done || exit 1
  printf '%s\n' "$left" | grep -Fxv -f - -- "$list" | write_list || exit 1
fi
[ -n "$failed" ] || undo=''
echo end
