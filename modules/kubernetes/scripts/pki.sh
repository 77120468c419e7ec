# Keys are put into /run before the switch and are gone after a reboot. Here they get
# their places, once.
wait_for() { # FILE WHAT
  until [ -s "$1" ]; do
    tell waiting "the $2 is not in $1"
    sleep 2
  done
}

copy() { # FROM TO MODE
  mkdir -p "${2%/*}" && cat "$1" >"$2.new" && chmod "$3" "$2.new" && mv "$2.new" "$2"
}

place_keys() {
  while read -r to from; do
    target=/etc/kubernetes/pki/$to
    [ ! -s "$target" ] || continue
    wait_for "$from" "key $to"
    case $to in
    *.key) copy "$from" "$target" 0600 || return ;;
    *) copy "$from" "$target" 0644 || return ;;
    esac
  done <"$PKI"
}

# With another key the server could not read what it has stored, so the first one stays.
place_encryption() {
  [ -n "${ENCRYPTION_KEY:-}" ] || return 0
  file=/etc/kubernetes/pki/nixbench-encryption.json
  if [ -s "$file" ]; then
    jq -r '.resources[0].providers[0].secretbox.keys[0].secret' "$file" >"$work/key"
  else
    wait_for "$ENCRYPTION_KEY" "encryption key"
    cat "$ENCRYPTION_KEY" >"$work/key"
  fi
  jq -n --rawfile key "$work/key" --arg resources "$ENCRYPTED" '{
    apiVersion: "apiserver.config.k8s.io/v1", kind: "EncryptionConfiguration",
    resources: [{ resources: ($resources | split(" ")),
      providers: [
        { secretbox: { keys: [{ name: "key1", secret: ($key | rtrimstr("\n")) }] } },
        { identity: {} } ] }] }' >"$file.new" && chmod 0600 "$file.new" && mv "$file.new" "$file"
  status=$?
  rm -f "$work/key"
  return "$status"
}
