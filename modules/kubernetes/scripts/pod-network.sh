# Give the node its subnet of pods and a route to that of every other possible node.
# Runs again and again, and then changes nothing.
set -eu
if [ ! -s "$NODE_FILE" ]; then
  echo "$NODE_FILE is not there yet; the timer comes back."
  exit 0
fi
own=$(jq -r .address "$NODE_FILE")

number() { # ADDRESS
  old=$IFS IFS=.
  # shellcheck disable=SC2086 # four words
  set -- $1
  IFS=$old
  echo $((($1 << 24) + ($2 << 16) + ($3 << 8) + $4))
}
host=$(($(number "$own") - NODES_FIRST))
if [ "$host" -lt 0 ] || [ "$host" -ge "$NODES" ]; then
  echo "The node's address $own is not in nixbench.kubernetes.nodeCidr." >&2
  exit 1
fi

# Arithmetic for all nodes in one process: there may be thousands, every half a minute.
arithmetic() { # JQ-PROGRAM
  jq -rn --argjson host "$host" --argjson first "$NODES_FIRST" --argjson nodes "$NODES" \
    --argjson pods "$PODS_FIRST" --argjson bits "$SUBNET" '
    def address: [16777216, 65536, 256, 1] as $places | . as $n | [$places[] | $n / . | floor % 256 | tostring] | join(".");
    def subnet: ($pods + . * pow(2; 32 - $bits) | address) + "/\($bits)";
    '"$1"
}

# The first by name counts, and packages of runtimes bring examples that begin with 10.
file=/etc/cni/net.d/05-nixbench.conflist
mkdir -p "${file%/*}"
new=${file%/*}/.nixbench.new
arithmetic '{
  cniVersion: "1.0.0", name: "nixbench",
  plugins: [
    { type: "bridge", bridge: "cni0", isGateway: true, hairpinMode: true,
      ipam: { type: "host-local", ranges: [[{ subnet: ($host | subnet) }]], routes: [{ dst: "0.0.0.0/0" }] } },
    { type: "portmap", capabilities: { portMappings: true } }
  ] }' >"$new"
cmp -s "$new" "$file" || mv "$new" "$file"
rm -f "$new"
chmod 0600 "$file" # the container runtime reads it as root

arithmetic 'range(1; $nodes - 1) | select(. != $host) | "route replace \(subnet) via \($first + . | address)"' >"/run/nixbench-routes.$$"
status=0
ip -force -batch "/run/nixbench-routes.$$" || status=1
rm -f "/run/nixbench-routes.$$"

# Outside of the cluster nobody knows the way back to a pod.
set -- POSTROUTING -s "$POD_CIDR" ! -d "$POD_CIDR" -m comment --comment "nixbench: pods leave as their node" -j MASQUERADE
iptables -w -t nat -C "$@" 2>/dev/null || iptables -w -t nat -A "$@"
exit "$status"
