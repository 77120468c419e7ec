# upload.sh MODE LIST ASIDE ASIDES: makes the keys of this node equal to the list on
# stdin. MODE is "apply", or "plan", which changes nothing. LIST is the file with the
# paths of all uploaded keys, one per line. ASIDE and ASIDES are explained in aside.sh.
#
# Three more modes use no stdin: "undo" restores the replaced keys from the backup if
# the switch was not executed, "restore" also after the switch, and "forget" deletes
# the backup.
#
# stdin    a line "SIZE COUNT", then SIZE bytes: COUNT keys, each with its path, owner, group,
#          mode, early or late, and hash, a line each; the paths of all keys in the hive;
#          the line "end"
# stdout   a greeting; for each key, by number: same, adjusted or send, and deferred
#          if the owner does not exist yet; "stale PATH"; then "next"
# stdin    if there are keys to send, a line with a size, and a tar archive of that size, with
#          the temporary file of each of them; then the line "prune" or "keep"
# stdout   for each of these keys "done N" or "failed N MESSAGE"; "removed PATH"; "end"
#
# Most of the time of an upload is spent on starting programs. Therefore a program gets the
# files of all keys at once. If that fails, the keys are stored one by one, so that the
# message is about one key.
#
# A key or its hash must never be an argument of a program, since other users can see
# arguments. printf, read and test are built into the shell.
#
# Paths contain no line break. A list of files is one variable with a line for each, and
# without quotes it expands to one argument for each line, since IFS is a line break.
export LC_ALL=C
PATH=/run/current-system/sw/bin:/nix/var/nix/profiles/default/bin:/usr/sbin:/usr/bin:/sbin:/bin:$PATH
umask 077
mode=$1 list=$2 aside=$3 asides=$4
nl='
'
IFS=$nl
set -f
temporaries=$list.new undo='' known='' failed=''
trap '[ "$mode" != apply ] || remove_files "$temporaries"; [ -z "$undo" ] || restore_backup' EXIT
trap 'exit 1' HUP INT TERM

one_line() { tr '\n' ' ' | cut -c 1-400; }

fail_early_end() {
  echo "the input ended early" >&2
  exit 1
}
read_line() { IFS= read -r "$1" || fail_early_end; }

has_line() { case $nl$1 in *"$nl$2$nl"*) ;; *) return 1 ;; esac } # LINES LINE

# subtract_lines sets rest to the lines that are not in the second list.
subtract_lines() { # LINES LINES
  rest=
  for line in $1; do has_line "$2" "$line" || rest=$rest$line$nl; done
}

exists() { [ -e "$1" ] || [ -L "$1" ]; }
# is_file reports whether a path is a file or link. A folder is never a key.
is_file() { [ -f "$1" ] || [ -L "$1" ]; }

remove_files() { # FILES
  found=
  for file in $1; do ! exists "$file" || found=$found$file$nl; done
  [ -z "$found" ] || rm -f -- $found
}

write_list() { # LINES
  make_folder "${list%/*}" && printf '%s' "$1" >"$list.new" && sync -- "$list.new" && mv -fT -- "$list.new" "$list"
}

is_known() { # DATABASE NAME
  case $2 in root) return 0 ;; *[!0-9]*) ;; *) return 0 ;; esac
  if ! has_line "$known" "$1 $2 yes" && ! has_line "$known" "$1 $2 no"; then
    answer=no
    ! { getent "$1" "$2" || grep "^$2:" "/etc/$1"; } >/dev/null 2>&1 || answer=yes
    known=$known$1' '$2' '$answer$nl
  fi
  has_line "$known" "$1 $2 yes"
}

make_folder() { # FOLDER
  [ ! -d "$1" ] || return 0
  if [ "$1" = /run/keys ]; then # with the mode and group of NixOS
    mkdir -p -- /run && mkdir -m 750 -- "$1" || return 1
    ! is_known group keys || chgrp -- keys "$1"
  else
    (umask 022 && mkdir -p -- "$1")
  fi
}

# read_keys reads the list of keys. Key N has the variables path_N, owner_N, …; see load_key. The owner is
# empty if it does not exist before the activation.
read_keys() {
  read_line counts
  count=${counts#* }
  set -- $(head -c "${counts% *}")
  i=0
  while [ "$i" -lt "$count" ]; do
    [ "$#" -gt 6 ] || fail_early_end
    owner=$2:$3 bits=$4
    if [ "$5" = early ] && ! { is_known passwd "$2" && is_known group "$3"; }; then owner='' bits=600; fi
    eval "path_$i=\$1 owner_$i=\$owner bits_$i=\$bits hash_$i=\$6 sum_$i= state_$i="
    shift 6
    i=$((i + 1))
  done
  keep=$*$nl
  has_line "$keep" end || fail_early_end
}

load_key() { # NUMBER
  eval "path=\$path_$1 owner=\$owner_$1 bits=\$bits_$1 hash=\$hash_$1 sum=\$sum_$1 state=\$state_$1"
  temporary=${path%/*}/.${path##*/}.nixbench-new
}

# cut_sum sets sum to the hash in a line of sha256sum, which begins with \ if the path contains a \.
cut_sum() {
  sum=${1#\\}
  sum=${sum%% *}
}

# read_files sets sum_N and state_N of all keys that exist, and deletes files of an earlier upload that was
# killed.
read_files() {
  files='' numbers='' left=''
  i=0
  while [ "$i" -lt "$count" ]; do
    load_key "$i"
    left=$left$temporary$nl
    if [ -f "$path" ] && [ ! -L "$path" ]; then files=$files$path$nl numbers=$numbers$i$nl; fi
    i=$((i + 1))
  done
  [ "$mode" = plan ] || remove_files "$left" 2>/dev/null
  [ -n "$files" ] || return 0
  # A program that fails prints no line for some of the files.
  set -- $(run_for_files sha256sum)
  for i in $numbers; do
    cut_sum "$1"
    eval "sum_$i=\$sum"
    shift
  done
  set -- $(run_for_files stat -c ' %U:%G %u:%G %U:%g %u:%g =%a')
  for i in $numbers; do
    eval "state_$i=\$1"
    shift
  done
}
run_for_files() { # PROGRAM…
  if out=$("$@" -- $files 2>/dev/null); then
    printf '%s\n' "$out"
  else
    for file in $files; do "$@" -- "$file" 2>/dev/null || echo missing; done
  fi
}

# has_permissions reports whether the loaded key has the desired owner and mode.
has_permissions() {
  case $state in *" $owner "*"=$bits") return 0 ;; esac
  [ -z "$owner" ] && [ "${state##*=}" = "$bits" ]
}

# set_permissions sets the owner before the mode, since the mode may allow a group to read.
set_permissions() { # OWNER MODE FILES
  { [ -z "$1" ] || chown -h -- "$1" $3; } && chmod -- "$2" $3
}

# compare_key prints the state of a key. If only the owner or mode differs, it sets them. A key that another
# tool has uploaded is the same if nothing differs, and is then added to the list; otherwise it is sent.
compare_key() { # NUMBER
  load_key "$1"
  deferred=
  [ -n "$owner" ] || deferred=" deferred"
  if has_line "$listed" "$path"; then
    new=
  else
    new=yes unlisted=$unlisted$path$nl
  fi
  if [ "$sum" != "$hash" ] || { [ -n "$new" ] && { [ -n "$deferred" ] || ! has_permissions; }; }; then
    echo "send $1$deferred"
    sends=$sends$1$nl
  elif has_permissions; then
    # deferred: this script leaves the owner unchanged, and the activation sets the desired owner. Back up the key
    # now, so that the backup has the old owner.
    [ -z "$deferred" ] || [ "$mode" = plan ] || back_up "$path"
    echo "same $1$deferred"
  elif [ "$mode" = plan ]; then
    echo "adjusted $1$deferred"
  elif said=$({ back_up "$path" && set_permissions "$owner" "$bits" "$path"; } 2>&1); then
    echo "adjusted $1$deferred"
  else
    echo "failed $1 $(printf '%s' "$said" | one_line)"
    failed=$failed$path$nl
  fi
}

# receive_archive writes the archive to file descriptor 3, a file in memory that no longer has a name.
receive_archive() {
  read_line size
  make_folder "${aside%/*}" && remove_files "$aside-archive" && exec 3<>"$aside-archive" &&
    rm -f -- "$aside-archive" && head -c "$size" >&3
}

# store_keys stores keys, and fails at the first error. The content of a key is written to a temporary file, which
# then replaces the key. tar creates the file with mode 0600, and does not write to a file or link that exists.
store_keys() { # NUMBERS
  files='' hashes='' sums='' all=''
  for i in "$@"; do
    load_key "$i"
    folder=${path%/*}
    make_folder "${folder:-/}" || return 1
    files=$files$temporary$nl hashes=$hashes$hash$nl
    has_line "$all" "$owner $bits" || all="$all$owner $bits$nl"
  done
  tar --extract --file=/proc/self/fd/3 --absolute-names --no-same-owner --no-unquote --touch -- $files || return 1
  out=$(sha256sum -- $files) || return 1
  for line in $out; do
    cut_sum "$line"
    sums=$sums$sum$nl
  done
  if [ "$sums" != "$hashes" ]; then
    echo "its content is incomplete" >&2
    return 1
  fi
  for permissions in $all; do
    equal=
    for i in "$@"; do
      load_key "$i"
      [ "$owner $bits" != "$permissions" ] || equal=$equal$temporary$nl
    done
    set_permissions "${permissions% *}" "${permissions##* }" "$equal" || return 1
  done
  sync -- $files || sync || return 1
  for i in "$@"; do
    load_key "$i"
    back_up "$path" && mv -fT -- "$temporary" "$path" || return 1
  done
}

# store_each stores keys one by one.
store_each() { # NUMBERS
  for number in "$@"; do
    if said=$(store_keys "$number" 2>&1); then
      echo "done $number"
    else
      load_key "$number"
      remove_files "$temporary" 2>/dev/null
      echo "failed $number $(printf '%s' "$said" | one_line)"
      failed=$failed$path$nl
    fi
  done
}

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
read_keys
listed=
if [ -s "$list" ]; then listed=$(cat -- "$list")$nl || exit 1; fi
before=$listed
if [ "$mode" = apply ]; then
  begin_backup
  # If the upload fails, there will be no switch: restore the backup at exit.
  case $asides in keep | hold) undo=yes ;; esac
fi
read_files
i=0 sends='' unlisted=''
while [ "$i" -lt "$count" ]; do
  compare_key "$i"
  i=$((i + 1))
done
subtract_lines "$listed" "$keep"
stale=$rest
for old in $stale; do ! is_file "$old" || printf 'stale %s\n' "$old"; done
echo next
[ "$mode" = apply ] || exit 0

[ -z "$sends" ] || receive_archive || exit 1
read_line last
# The list is written before the keys, so that every uploaded key is in it.
if [ -n "$unlisted" ]; then
  listed=$listed$unlisted
  back_up "$list" && write_list "$listed" || exit 1
fi
for i in $sends; do
  load_key "$i"
  temporaries=$temporaries$nl$temporary
done
if [ -z "$sends" ]; then
  :
elif store_keys $sends 2>/dev/null; then
  printf 'done %s\n' $sends
else
  store_each $sends
fi
# The list must not contain a file that this script has not written, since a listed file is removed with its key.
if [ -n "$failed" ] && [ -n "$unlisted" ]; then
  subtract_lines "$unlisted" "$failed"
  listed=$before$rest
  write_list "$listed" || exit 1
fi

if [ "$last" = prune ] && [ -z "$failed" ] && [ -n "$stale" ]; then
  back_up "$list" || exit 1
  files=
  for old in $stale; do
    files=$files${old%/*}/.${old##*/}.nixbench-new$nl
    ! is_file "$old" || { back_up "$old" && files=$files$old$nl; } || exit 1
  done
  remove_files "$files" || exit 1
  for old in $stale; do has_line "$files" "$old" && printf 'removed %s\n' "$old"; done
  subtract_lines "$listed" "$stale"
  write_list "$rest" || exit 1
fi
[ -n "$failed" ] || undo=''
echo end
