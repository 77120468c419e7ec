# Configure the node's subnet of pods, and a route to the subnet of every other possible node. The systemd unit runs this script
# periodically. The script changes nothing if all is configured.
set -eu
if [ ! -s "$NODE_FILE" ]; then
  echo "$NODE_FILE does not exist yet; the timer starts this unit again."
  exit 0
fi
address=$(jq -r .address "$NODE_FILE")

number() { # ADDRESS
  local part
  IFS=. read -r -a part <<<"$1"
  echo $(((part[0] << 24) + (part[1] << 16) + (part[2] << 8) + part[3]))
}
host=$(($(number "$address") - NODES_FIRST))
if [ "$host" -lt 0 ] || [ "$host" -ge "$NODES" ]; then
  echo "The node's address $address is not in nixbench.kubernetes.nodeCidr." >&2
  exit 1
fi

# compute JQ-PROGRAM: compute the addresses of all nodes in one process, because there may be thousands of nodes.
compute() {
  jq -rn --argjson host "$host" --argjson first "$NODES_FIRST" --argjson nodes "$NODES" \
    --argjson pods "$PODS_FIRST" --argjson bits "$SUBNET" '
    def address: [16777216, 65536, 256, 1] as $places | . as $n | [$places[] | $n / . | floor % 256 | tostring] | join(".");
    def subnet: ($pods + . * pow(2; 32 - $bits) | address) + "/\($bits)";
    '"$1"
}

# The name of this file begins with 05, because a container runtime uses the first file in the folder. The package of the
# container runtime contains examples whose names begin with 10.
file=/etc/cni/net.d/05-nixbench.conflist
mkdir -p "${file%/*}"
new=${file%/*}/.nixbench.new
# shellcheck disable=SC2016 # the variables are jq's
compute '{
  cniVersion: "1.0.0", name: "nixbench",
  plugins: [
    { type: "bridge", bridge: "cni0", isGateway: true, hairpinMode: true,
      ipam: { type: "host-local", ranges: [[{ subnet: ($host | subnet) }]], routes: [{ dst: "0.0.0.0/0" }] } },
    { type: "portmap", capabilities: { portMappings: true } }
  ] }' >"$new"
cmp -s "$new" "$file" || mv "$new" "$file"
rm -f "$new"
chmod 0600 "$file" # the container runtime reads it as root

# shellcheck disable=SC2016 # the variables are jq's
compute 'range(1; $nodes - 1) | select(. != $host) | "route replace \(subnet) via \($first + . | address)"' >"/run/nixbench-routes.$$"
status=0
ip -force -batch "/run/nixbench-routes.$$" || status=1
rm -f "/run/nixbench-routes.$$"

# Packets that pods send to hosts outside of the cluster get the address of the node, because these hosts have no route to the
# address of a pod.
set -- POSTROUTING -s "$POD_CIDR" ! -d "$POD_CIDR" -m comment --comment "nixbench: pods leave as their node" -j MASQUERADE
iptables -w -t nat -C "$@" 2>/dev/null || iptables -w -t nat -A "$@"
exit "$status"
