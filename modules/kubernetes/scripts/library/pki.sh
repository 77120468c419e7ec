# Install keys and other files that the API server reads. The keys are uploaded to /run before the switch and
# are deleted by a reboot, so they are copied to their final paths once.

# wait_for_key FILE NAME: wait until a key is uploaded. With missing_key=fail, a missing key is an error.
wait_for_key() {
  if [ "${missing_key:-wait}" = fail ] && [ ! -s "$1" ]; then
    set_output "The $2 is not in $1."
    return 1
  fi
  until [ -s "$1" ]; do
    report_phase waiting "the $2 is not in $1"
    sleep 2
  done
}

# install_file FROM TO MODE: copy a file atomically.
install_file() {
  mkdir -p "${2%/*}" && cat "$1" >"$2.new" && chmod "$3" "$2.new" && mv "$2.new" "$2"
}

install_keys() {
  local to from target
  while read -r to from; do
    target=/etc/kubernetes/pki/$to
    [ ! -s "$target" ] || continue
    wait_for_key "$from" "key $to" || return
    case $to in
    *.key) install_file "$from" "$target" 0600 || return ;;
    *) install_file "$from" "$target" 0644 || return ;;
    esac
  done <"$PKI"
}

# install_encryption_config: write the API server's configuration for encryption at rest. The API server encrypts with the first
# uploaded key. The keys of the previous configuration stay in the file under their names, because data that were encrypted with
# them must remain readable. If no key is uploaded, the previous configuration stays, provided that it contains the keys of this
# system.
install_encryption_config() {
  local file=/etc/kubernetes/pki/nixbench-encryption.json given previous
  [ -n "${ENCRYPTION_KEY:-}" ] || return 0
  given=$ENCRYPTION_KEY previous=$file
  [ -s "$file" ] || previous=/dev/null
  if ! { [ -s "$file" ] && { [ -z "${ENCRYPTION_SUM:-}" ] || [ -e "$records/encryption-$ENCRYPTION_SUM" ]; }; }; then
    wait_for_key "$ENCRYPTION_KEY" "encryption key" || return
  fi
  [ -s "$given" ] || given=/dev/null
  jq -n --rawfile given "$given" --slurpfile previous "$previous" --arg resources "$ENCRYPTED" '
    [$previous[].resources[0].providers[0].secretbox.keys[]] as $previous
    | [$given | splits("\n") | select(. != "") | split(" ")
        | if length == 1 then { name: "key1", secret: .[0] } else { name: .[0], secret: .[1] } end] as $given
    | [$given[] | .name as $name | ($previous[] | select(.name == $name)) // .]
    | . + [$previous[] | select(.name as $name | $given | all(.name != $name))]
    | {
        apiVersion: "apiserver.config.k8s.io/v1", kind: "EncryptionConfiguration",
        resources: [{ resources: ($resources | split(" ")),
          providers: [ { secretbox: { keys: . } }, { identity: {} } ] }] }' \
    >"$file.new" && chmod 0600 "$file.new" && mv "$file.new" "$file" || return
  [ "$given" = /dev/null ] || write_record "encryption-$(sha256sum <"$given" | cut -d ' ' -f 1)" ""
}

# install_ca_bundle: copy the node's CA certificates into a file for containers, because a container cannot follow links into the
# Nix store.
install_ca_bundle() {
  local file=/etc/kubernetes/authorities/ca-certificates.crt
  [ -n "$AUTHORITIES" ] && ! cmp -s "$AUTHORITIES" "$file" || return 0
  mkdir -p "${file%/*}" && chmod 0755 "${file%/*}" && install_file "$AUTHORITIES" "$file" 0644
}

# install_audit_policy installs the audit policy, which the API server reads when it starts. The file must exist before the API
# server's manifest names it. kubeadm makes the manifest from settings in the API, and another control plane may have written
# these settings.
install_audit_policy() {
  local file=/etc/kubernetes/audit-policy.json
  [ -n "${AUDIT_POLICY:-}" ] && ! cmp -s "$AUDIT_POLICY" "$file" || return 0
  install_file "$AUDIT_POLICY" "$file" 0600
}
