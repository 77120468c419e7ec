# upload.sh MODE LIST ASIDE ASIDES READERS: makes the keys of this node equal to the list on
# stdin. MODE is "apply", or "plan", which changes nothing. LIST is the file with the
# paths of all uploaded keys, one per line. ASIDE and ASIDES are explained in aside.sh.
# READERS is the folder with the hashes of keys that units have read (see modules/keys.nix), or
# empty: restart no unit.
#
# Three more modes use no stdin: "undo" restores the replaced keys from the backup if
# the switch was not executed, "restore" also after the switch, and "forget" deletes
# the backup.
#
# stdin    a line "SIZE COUNT", then SIZE bytes: COUNT keys, each with its path, owner, group,
#          mode, early or late, and hash, a line each; the paths of all keys in the hive;
#          the line "end"
# stdout   a greeting; for each key, by number: same, adjusted or send, and deferred
#          if the owner does not exist yet; "stale PATH"; "restart UNIT" for the units that have read
#          another key than the one on the disk; then "next"
# stdin    if there are keys to send, a line with a size, and a tar archive of that size, with
#          the temporary file of each of them; then the line "prune" or "keep"
# stdout   for each of these keys "done N" or "failed N MESSAGE"; "removed PATH"; "restarted UNIT"; "end"
#
# Most of the time of an upload is spent on starting programs. Therefore a program gets the
# files of all keys at once. If that fails, the keys are stored one by one, so that the
# message is about one key.
#
# A key or its hash must never be an argument of a program, since other users can see
# arguments. printf, read and test are built into the shell.
#
# Only root can replace the folders above a key, see find_unsafe. The folder of a key may belong to the key's user, who could
# replace a file in it at any time by a link to a file of root. Therefore no program changes the owner or mode of a file in such
# a folder by its path: tar and cp create a file, and set its owner and mode by its descriptor.
#
# Paths contain no line break. A list of files is one variable with a line for each, and
# without quotes it expands to one argument for each line, since IFS is a line break.
export LC_ALL=C
PATH=/run/current-system/sw/bin:/nix/var/nix/profiles/default/bin:/usr/sbin:/usr/bin:/sbin:/bin:$PATH
umask 077
mode=$1 list=$2 aside=$3 asides=$4 readers=$5
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

# subtract_lines sets rest to the lines of the first list that the second list does not contain.
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

# find_unsafe finds the folders of FILES, and the folders above them, in which a user other than root can replace files or
# folders. It sets unsafe to a line "TYPE USER UID MODE FOLDER" for each. A folder with the sticky bit is safe, because nobody can
# replace files of root in it.
find_unsafe() { # FILES
  unsafe='' folders='' found=''
  for file in $1; do
    folder=${file%/*}
    while [ -n "$folder" ] && ! has_line "$folders" "$folder"; do
      folders=$folders$folder$nl
      ! exists "$folder" || found=$found$folder$nl
      folder=${folder%/*}
    done
  done
  [ -z "$found" ] || unsafe=$(find $found -maxdepth 0 ! \( -type d -uid 0 \( ! -perm /022 -o -perm -1000 \) \) -printf '%y %u %U %m %p\n')
}

# check_folders fails with a message if a user other than root could replace a folder above FILE. The folder of FILE itself may
# belong to root or to USER, the user of the key. Without USER, this folder may belong to any user.
check_folders() { # FILE [USER]
  for line in $unsafe; do
    at=${line#* * * * }
    case $1 in "$at"/*) ;; *) continue ;; esac
    who=${line#* }
    who=${who% "$at"}
    if [ "${line%% *}$at" = "d${1%/*}" ]; then
      [ "$#" = 2 ] || continue
      case $who in *" 0 "*) ;; "$2 "* | *" $2 "*) continue ;; esac
    fi
    echo "other users than root can change $at (${who%% *}, ${who##* })"
    return 1
  done
}

# read_keys reads the list of desired keys from stdin. Key N is stored in the variables path_N, owner_N, and so on; see load_key.
# The owner of a key is empty if the activation creates the user later.
read_keys() {
  read_line counts
  count=${counts#* }
  set -- $(head -c "${counts% *}")
  i=0
  while [ "$i" -lt "$count" ]; do
    [ "$#" -gt 6 ] || fail_early_end
    user=$2 owner=$2:$3 bits=$4 problem=
    if ! { is_known passwd "$2" && is_known group "$3"; }; then
      case $5,$mode in
      early,*) user='' owner='' bits=600 ;;
      late,apply) problem="the node has no user $2 or no group $3" ;;
      esac
    fi
    eval "path_$i=\$1 user_$i=\$user owner_$i=\$owner bits_$i=\$bits hash_$i=\$6 problem_$i=\$problem sum_$i= state_$i="
    shift 6
    i=$((i + 1))
  done
  keep=$*$nl
  has_line "$keep" end || fail_early_end
}

load_key() { # NUMBER
  eval "path=\$path_$1 user=\$user_$1 owner=\$owner_$1 bits=\$bits_$1 hash=\$hash_$1 problem=\$problem_$1 sum=\$sum_$1 state=\$state_$1"
  temporary=${path%/*}/.${path##*/}.nixbench-new
}

# cut_sum sets sum to the hash in a line of the output of sha256sum. The line begins with \ if the path contains a \.
cut_sum() {
  sum=${1#\\}
  sum=${sum%% *}
}

# read_files sets sum_N (the hash) and state_N (owner and mode) for each key N that exists on the node. It deletes temporary files
# that a killed upload has left.
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
  # sha256sum prints no line for a file that it cannot read.
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

# has_permissions reports whether a key has the desired owner and mode on the node. load_key must have loaded the key before.
has_permissions() {
  case $state in *" $owner "*"=$bits") return 0 ;; esac
  [ -z "$owner" ] && [ "${state##*=}" = "$bits" ]
}

# set_permissions sets the owner of a file, and then its mode. In the other order, the old group of the file could read it for a
# moment.
set_permissions() { # OWNER MODE FILE
  { [ -z "$1" ] || chown -h -- "$1" "$3"; } && chmod -- "$2" "$3"
}

# print_failure prints that key NUMBER has failed, and the reason.
print_failure() { # NUMBER PATH MESSAGE
  echo "failed $1 $(printf '%s' "$3" | one_line)"
  failed=$failed$2$nl
}

# compare_key prints whether key NUMBER on the node is the desired key. If only the owner or mode differs, compare_key sets them.
# If another tool has uploaded the key and nothing differs, compare_key adds it to the list of uploaded keys; if something
# differs, the client must send the key. The client must also send a key with a different owner or mode if the key's folder does
# not belong to root alone.
compare_key() { # NUMBER
  load_key "$1"
  deferred=
  [ -n "$owner" ] || deferred=" deferred"
  if [ -z "$problem" ] && [ -n "$unsafe" ] && ! problem=$(check_folders "$path" "$user"); then
    problem="$problem; choose another destDir, such as /run/keys, or let root own this folder and alone write to it"
  fi
  if [ -n "$problem" ]; then
    print_failure "$1" "$path" "$problem"
    return
  fi
  if has_line "$listed" "$path"; then
    new=
  else
    new=yes unlisted=$unlisted$path$nl
  fi
  case $nl$unsafe$nl in *" ${path%/*}$nl"*) new=yes ;; esac
  if [ "$sum" != "$hash" ] || { [ -n "$new" ] && { [ -n "$deferred" ] || ! has_permissions; }; }; then
    echo "send $1$deferred"
    sends=$sends$1$nl
  elif has_permissions; then
    # The user of this key does not exist yet, so the activation sets the key's owner later. Back up the key now, so that the
    # backup has the old owner.
    [ -z "$deferred" ] || [ "$mode" = plan ] || back_up "$path"
    echo "same $1$deferred"
  elif [ "$mode" = plan ]; then
    echo "adjusted $1$deferred"
  elif said=$({ back_up "$path" && set_permissions "$owner" "$bits" "$path"; } 2>&1); then
    echo "adjusted $1$deferred"
  else
    print_failure "$1" "$path" "$said"
  fi
}

# receive_archive copies the tar archive from stdin to file descriptor 3. This is a file in memory that no longer has a name.
receive_archive() {
  read_line size
  make_folder "${aside%/*}" && remove_files "$aside-archive" && exec 3<>"$aside-archive" &&
    rm -f -- "$aside-archive" && head -c "$size" >&3
}

# store_keys stores the keys with these NUMBERS, and fails at the first error. tar creates a temporary file for each key, and sets
# the file's owner and then its mode. tar never writes to an existing file or link. Then the temporary file replaces the key.
store_keys() { # NUMBERS
  files=
  for i in "$@"; do
    load_key "$i"
    folder=${path%/*}
    make_folder "${folder:-/}" || return 1
    files=$files$temporary$nl
  done
  tar --extract --file=/proc/self/fd/3 --absolute-names --same-owner --preserve-permissions --no-unquote --touch -- $files || return 1
  sync -- $files || sync || return 1
  for i in "$@"; do
    load_key "$i"
    back_up "$path" && mv -fT -- "$temporary" "$path" || return 1
  done
}

# store_each stores the keys with these NUMBERS one by one, so that an error is about one key.
store_each() { # NUMBERS
  for number in "$@"; do
    if said=$(store_keys "$number" 2>&1); then
      echo "done $number"
    else
      load_key "$number"
      remove_files "$temporary" 2>/dev/null
      print_failure "$number" "$path" "$said"
    fi
  done
}

# find_outdated sets outdated to the services that have read another version of a key than the one that is on the disk now.
find_outdated() {
  outdated=
  [ -n "$readers" ] || return 0
  set +f
  set -- "$readers"/*
  set -f
  for file in "$@"; do
    [ ! -f "$file" ] || sha256sum --check --status -- "$file" 2>/dev/null || outdated=$outdated${file##*/}$nl
  done
}

restart_outdated() {
  find_outdated
  [ -n "$outdated" ] || return 0
  if ! said=$(timeout 120 systemctl --no-ask-password try-restart -- $outdated 2>&1); then
    echo "the keys are written, and the units that read them cannot be restarted: $(printf '%s' "${said:-$outdated}" | one_line)" >&2
    return 1
  fi
  printf 'restarted %s\n' $outdated
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
if [ -s "$list" ]; then
  while IFS= read -r line; do listed=$listed$line$nl; done <"$list" || exit 1
fi
before=$listed
subtract_lines "$listed" "$keep"
stale=$rest
find_unsafe "${keep%end"$nl"}$stale" || exit 1
if [ "$mode" = apply ]; then
  begin_backup
  # This upload comes before a switch. If the upload fails, there will be no switch: restore the backup at exit.
  case $asides in keep | hold) undo=yes ;; esac
fi
read_files
i=0 sends='' unlisted=''
while [ "$i" -lt "$count" ]; do
  compare_key "$i"
  i=$((i + 1))
done
for old in $stale; do ! is_file "$old" || printf 'stale %s\n' "$old"; done
if [ "$mode" = plan ]; then
  find_outdated
  for unit in $outdated; do echo "restart $unit"; done
fi
echo next
[ "$mode" = apply ] || exit 0

[ -z "$sends" ] || receive_archive || exit 1
read_line last
# Write the list of uploaded keys before the keys, so that every uploaded key is in it.
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
# Remove the keys that could not be stored from the list of uploaded keys, since nixbench later deletes files in this list.
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
    is_file "$old" || continue
    if ! problem=$(check_folders "$old"); then
      echo "remove $old by hand: $problem" >&2
      exit 1
    fi
    back_up "$old" && files=$files$old$nl || exit 1
  done
  remove_files "$files" || exit 1
  for old in $stale; do has_line "$files" "$old" && printf 'removed %s\n' "$old"; done
  subtract_lines "$listed" "$stale"
  write_list "$rest" || exit 1
fi
restart_outdated || exit 1
[ -n "$failed" ] || undo=''
echo end
