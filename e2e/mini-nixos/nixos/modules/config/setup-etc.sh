# Update /etc to the files of the system. Links point into /etc/static, so a file that the
# new generation does not have is a dangling link.
setupEtc() {
  local new=$systemConfig/etc static=/etc/static f to dir mode kept='' line

  place() { # DIRECTORY-RELATIVE-NAME: move /etc/.new.NAME over it
    if mountpoint -q "/etc/$1" 2>/dev/null; then
      echo "warning: /etc/$1 is a mount point, leaving it alone" >&2
      rm -f "$to"
    elif [ -d "/etc/$1" ] && [ ! -L "/etc/$1" ]; then
      echo "warning: /etc/$1 is a directory with files of its own, leaving it alone" >&2
      rm -f "$to"
    else
      mv -fT "$to" "/etc/$1"
    fi
  }

  ln -sfn "$(readlink -f "$new")" /etc/.static.new
  mv -fT /etc/.static.new "$static"

  # Few processes: on an emulated machine each costs milliseconds.
  while IFS= read -r -d '' f; do
    case $f in *.mode | *.uid | *.gid) [ -L "$new/$f" ] || continue ;; esac
    dir=/etc
    [ "${f%/*}" = "$f" ] || dir=/etc/${f%/*}
    [ -d "$dir" ] || mkdir -p "$dir"
    to=$dir/.new.${f##*/}
    mode=symlink
    [ ! -e "$new/$f.mode" ] || read -r mode <"$new/$f.mode"
    case $mode in
    symlink)
      if ! { [ -L "/etc/$f" ] && [ "/etc/$f" -ef "$new/$f" ]; }; then
        ln -sfn "$static/$f" "$to"
        place "$f"
      fi
      ;;
    direct-symlink)
      ln -sfn "$(readlink "$new/$f")" "$to"
      place "$f"
      kept+=$f$'\n'
      ;;
    *)
      cp -L --no-preserve=all "$new/$f" "$to"
      chown "$(cat "$new/$f.uid"):$(cat "$new/$f.gid")" "$to"
      chmod "$mode" "$to"
      place "$f"
      kept+=$f$'\n'
      ;;
    esac
  done < <(cd "$new/" && find . ! -type d -printf '%P\0')

  # Links and copies of older generations.
  while IFS= read -r -d '' f; do
    [ -e "$static/$f" ] || [ -L "$static/$f" ] || rm -f "/etc/$f"
  done < <(find /etc -lname "$static/*" -printf '%P\0')
  if [ -e /etc/.clean ]; then
    while IFS= read -r line; do
      case $'\n'$kept in *$'\n'"$line"$'\n'*) continue ;; esac
      # A file that is now a link belongs to this generation.
      [ "$(readlink "/etc/$line")" = "$static/$line" ] || rm -f "/etc/$line"
    done </etc/.clean
  fi
  printf '%s' "$kept" >/etc/.clean
  touch /etc/NIXOS
}
setupEtc
unset -f setupEtc place
