# Shared: how far we are, and commands whose end goes into messages.
set -u
set -o pipefail

memory=/var/lib/nixbench/kubernetes # what was done, and need not be done again
work=/run/nixbench/kubernetes       # nobody else's, gone with a reboot
mkdir -p "$work" "$memory"
chmod 0755 /run/nixbench
chmod 0700 "$work" "$memory"
attempt=1 phase='' since='' told=''

# tell PHASE [MESSAGE]: write the state, for whoever looks after us.
tell() {
  [ "$1|$attempt|${2:-}" != "$told" ] || return 0 # who waits says it again and again
  [ "$1" = "$phase" ] || since=$(date -u +%Y-%m-%dT%H:%M:%SZ)
  echo "$1${2:+: $2}"
  told="$1|$attempt|${2:-}"
  phase=$1
  # By files: arguments are for everybody to see, and a program may say a secret.
  printf '%s' "${2:-}" >"$work/message"
  if [ -s "$JOIN_TOKEN" ]; then cat "$JOIN_TOKEN"; fi >"$work/hide" 2>/dev/null
  for dir in /run/nixbench /var/lib/nixbench; do
    jq -n --arg phase "$phase" --arg since "$since" --argjson attempt "$attempt" \
      --rawfile message "$work/message" --rawfile hide "$work/hide" '
      ($hide | rtrimstr("\n")) as $hide
      | { version: 1, $phase, $since, $attempt,
          message: (if $hide == "" then $message else $message | split($hide) | join("(secret)") end) }' \
      >"$dir/.kubernetes.json.new" &&
      chmod 0644 "$dir/.kubernetes.json.new" &&
      mv "$dir/.kubernetes.json.new" "$dir/kubernetes.json"
  done
  rm -f "$work/hide"
}

# run COMMAND...: its output goes to the journal, and its end into the next message.
run() {
  "$@" </dev/null 2>&1 | tee "$work/output" >&2
}
# What kubeadm's checks found says more than what it printed last.
last_words() {
  {
    grep -F '[ERROR ' "$work/output" ||
      grep -v -e '^[[:space:]]*$' -e 'see the stack trace' -e 'If you know what you are doing' "$work/output"
  } 2>/dev/null | tail -n 4 | tr -s '[:space:]' ' ' | sed 's/^ //; s/ $//' | cut -c 1-800
}

# remember NAME TEXT: write a file whole or not at all.
remember() {
  printf '%s\n' "$2" >"$memory/.$1.new" && mv "$memory/.$1.new" "$memory/$1"
}
remembered() {
  cat "$memory/$1" 2>/dev/null
}

# documents init|join|cluster [PEER]: write them for kubeadm; prints the file's name.
documents() {
  token=$JOIN_TOKEN
  [ -s "$token" ] || token=/dev/null
  registration=$REGISTRATION
  [ -s "$registration" ] || registration=/dev/null
  jq -rn --slurpfile template "$TEMPLATE" --slurpfile node "$NODE_FILE" --rawfile token "$token" --slurpfile registration "$registration" \
    --arg want "$1" --arg peer "${2:-}" --arg ttl "$TOKEN_TTL" -f "$DOCUMENTS" >"$work/$1.yaml.$$" &&
    mv "$work/$1.yaml.$$" "$work/$1.yaml" && echo "$work/$1.yaml"
}

# An administrator's kubeconfig for this node's own server: the endpoint's may be gone.
admin_here() {
  export KUBECONFIG=$work/admin.conf
  (umask 077 && sed "s|^\( *server:\).*|\1 https://$own:$PORT|" /etc/kubernetes/admin.conf >"$KUBECONFIG.$$") &&
    mv "$KUBECONFIG.$$" "$KUBECONFIG"
}

# ask ADDRESS PATH: what an API server tells anybody. Nothing secret is sent, so one
# whose certificate we cannot judge yet may answer, too.
ask() {
  set -- "https://$1:$PORT$2" -k
  [ ! -s /etc/kubernetes/pki/ca.crt ] || set -- "$1" --cacert /etc/kubernetes/pki/ca.crt
  curl --noproxy '*' -sf --connect-timeout 3 --max-time 5 "$@"
}
