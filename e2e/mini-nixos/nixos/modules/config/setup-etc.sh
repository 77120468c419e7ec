# Update /etc to the files of the system. Links point into /etc/static, so a file that the
# new generation does not have is a dangling link. Few programs are started: they are most of
# what an activation costs.
setupEtc() {
  local new=$systemConfig/etc static=/etc/static old=/etc/static f dir mode uid gid kept='' line
  local -A mounted=() links=() gone=() missing=()
  local linked='' earlier=()

  while read -r _ _ _ _ line _; do mounted[$line]=1; done </proc/self/mountinfo
  replaceable() { # FILE
    if [ -n "${mounted[/etc/$1]:-}" ]; then
      echo "warning: /etc/$1 is a mount point, leaving it alone" >&2
    elif [ -d "/etc/$1" ] && [ ! -L "/etc/$1" ]; then
      echo "warning: /etc/$1 is a directory with files of its own, leaving it alone" >&2
    else
      return 0
    fi
    return 1
  }

  # Compares the contents, modes and owners of a copied file in two systems.
  isSame() { # FILE FILE
    local suffix
    for suffix in '' .mode .uid .gid; do
      [ -f "$1$suffix" ] && [ "$(<"$1$suffix")" = "$(<"$2$suffix")" ] || return
    done
  }

  if ! [ "$static" -ef "$new" ]; then
    [ ! -d "$static" ] || old=$(cd -P "$static" && echo "$PWD")
    ln -sfn "$(cd -P "$new" && echo "$PWD")" "$static" # ln replaces a link atomically
  fi

  # The files and links of the new system, not the folders.
  local files=() all=()
  shopt -s globstar dotglob nullglob
  all=("$new"/**)
  shopt -u globstar dotglob nullglob
  for f in "${all[@]}"; do
    f=${f#"$new/"}
    [ -z "$f" ] || [ -d "$new/$f" ] && [ ! -L "$new/$f" ] || files+=("$f")
  done
  for f in "${files[@]}"; do
    dir=/etc
    [ "${f%/*}" = "$f" ] || dir=/etc/${f%/*}
    [ -d "$dir" ] || missing[$dir]=1
  done
  [ ${#missing[@]} = 0 ] || mkdir -p "${!missing[@]}"
  for f in "${files[@]}"; do
    case $f in *.mode | *.uid | *.gid) [ -L "$new/$f" ] || continue ;; esac
    dir=/etc
    [ "${f%/*}" = "$f" ] || dir=/etc/${f%/*}
    mode=symlink
    [ ! -e "$new/$f.mode" ] || read -r mode <"$new/$f.mode"
    case $mode in
    symlink)
      linked+=$f$'\n'
      if ! { [ -L "/etc/$f" ] && [ "/etc/$f" -ef "$new/$f" ]; } && replaceable "$f"; then
        links[$dir]+="$static/$f"$'\n'
      fi
      ;;
    direct-symlink)
      ! replaceable "$f" || ln -sfn "$(readlink "$new/$f")" "/etc/$f"
      kept+=$f$'\n'
      ;;
    *)
      read -r uid <"$new/$f.uid"
      read -r gid <"$new/$f.gid"
      if [ -f "/etc/$f" ] && [ "$(<"/etc/$f")" = "$(<"$new/$f")" ] && isSame "$old/$f" "$new/$f"; then
        : # the activation of the old system has installed it
      elif replaceable "$f"; then
        install -T -o "${uid#+}" -g "${gid#+}" -m "$mode" "$new/$f" "$dir/.new.${f##*/}"
        mv -fT "$dir/.new.${f##*/}" "/etc/$f"
      fi
      kept+=$f$'\n'
      ;;
    esac
  done
  # ln replaces a link atomically.
  for dir in "${!links[@]}"; do
    mapfile -t files <<<"${links[$dir]%$'\n'}"
    ln -sfn -t "$dir" "${files[@]}"
  done

  # Links and copies of older generations.
  if [ -e /etc/.links ]; then
    mapfile -t earlier </etc/.links
  else
    mapfile -t earlier < <(find /etc -lname "$static/*" -printf '%P\n')
  fi
  for f in "${earlier[@]}"; do
    [ -e "$static/$f" ] || [ -L "$static/$f" ] || [ ! -L "/etc/$f" ] || [ -e "/etc/$f" ] || gone[/etc/$f]=1
  done
  if [ -e /etc/.clean ]; then
    while IFS= read -r line; do
      case $'\n'$kept in *$'\n'"$line"$'\n'*) continue ;; esac
      # A file that is now a link belongs to this generation.
      [ -L "/etc/$line" ] && [ "/etc/$line" -ef "$static/$line" ] || gone[/etc/$line]=1
    done </etc/.clean
  fi
  [ ${#gone[@]} = 0 ] || rm -f "${!gone[@]}"
  printf '%s' "$kept" >/etc/.clean
  printf '%s' "$linked" >/etc/.links
  [ -e /etc/NIXOS ] || : >/etc/NIXOS
}
setupEtc
unset -f setupEtc replaceable isSame
