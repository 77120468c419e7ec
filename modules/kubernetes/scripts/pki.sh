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

# The first of the keys that we are given encrypts. One that was there before stays, under its
# name, since what it has encrypted is to be read. While we have none, those from before will
# do, if they are all that this system is to have.
place_encryption() {
  [ -n "${ENCRYPTION_KEY:-}" ] || return 0
  file=/etc/kubernetes/pki/nixbench-encryption.json given=$ENCRYPTION_KEY had=$file
  [ -s "$file" ] || had=/dev/null
  [ -s "$file" ] && { [ -z "${ENCRYPTION_SUM:-}" ] || [ -e "$memory/encryption-$ENCRYPTION_SUM" ]; } ||
    wait_for "$ENCRYPTION_KEY" "encryption key"
  [ -s "$given" ] || given=/dev/null
  jq -n --rawfile given "$given" --slurpfile had "$had" --arg resources "$ENCRYPTED" '
    [$had[].resources[0].providers[0].secretbox.keys[]] as $had
    | [$given | splits("\n") | select(. != "") | split(" ")
        | if length == 1 then { name: "key1", secret: .[0] } else { name: .[0], secret: .[1] } end] as $given
    | [$given[] | .name as $name | ($had[] | select(.name == $name)) // .]
    | . + [$had[] | select(.name as $name | $given | all(.name != $name))]
    | {
        apiVersion: "apiserver.config.k8s.io/v1", kind: "EncryptionConfiguration",
        resources: [{ resources: ($resources | split(" ")),
          providers: [ { secretbox: { keys: . } }, { identity: {} } ] }] }' \
    >"$file.new" && chmod 0600 "$file.new" && mv "$file.new" "$file" || return
  [ "$given" = /dev/null ] || remember "encryption-$(sha256sum <"$given" | cut -d ' ' -f 1)" ""
}

# For containers, which cannot follow the node's own links into the store.
place_authorities() {
  file=/etc/kubernetes/authorities/ca-certificates.crt
  [ -n "$AUTHORITIES" ] && ! cmp -s "$AUTHORITIES" "$file" || return 0
  mkdir -p "${file%/*}" && chmod 0755 "${file%/*}" && copy "$AUTHORITIES" "$file" 0644
}

# The API server reads it when it starts, also where another control plane's settings name it.
place_audit_policy() {
  file=/etc/kubernetes/audit-policy.json
  [ -n "${AUDIT_POLICY:-}" ] && ! cmp -s "$AUDIT_POLICY" "$file" || return 0
  copy "$AUDIT_POLICY" "$file" 0600
}
