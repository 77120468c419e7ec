# PROGRAM [ARGUMENT...]: run the kubelet with this node's name and address. Of arguments that are given twice the last one
# counts, so kubeadm's flags come first. kubeadm up to 1.34 writes a flag that later kubelets do not accept; the
# runtime's settings have the same effect.
set -eu
kubelet=$1
shift
read -r -a kubeadm_flags <<<"${KUBELET_KUBEADM_ARGS:-}"
flags=()
for flag in "${kubeadm_flags[@]}"; do
  case $flag in --pod-infra-container-image=*) ;; *) flags+=("$flag") ;; esac
done
name=$(jq -r .name "$NODE_FILE")
address=$(jq -r .address "$NODE_FILE")
# The labels with which the kubelet registers the node. nixbench updates the labels of a registered node.
labels=
[ ! -s "$REGISTRATION" ] || labels=$(jq -r '.labels | to_entries | map("\(.key)=\(.value)") | join(",")' "$REGISTRATION")

# Drop packets to a Service for which kube-proxy has no rules yet. Otherwise connection tracking would remember another
# route for them, and use it for later packets for up to half a minute, although the rules exist by then. A dropped
# packet is sent again after a second. Rules of earlier settings are deleted.
delete_rules filter nixbench-services
for chain in ${SERVICES:+FORWARD OUTPUT}; do
  iptables -w -A "$chain" -d "$SERVICES" -m comment --comment nixbench-services -j DROP ||
    echo "iptables cannot add the rule that drops packets to Services without rules." >&2
done

exec "$kubelet" \
  --bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf \
  --kubeconfig=/etc/kubernetes/kubelet.conf \
  "${flags[@]}" \
  --config="$CONFIG" \
  --hostname-override="$name" \
  --node-ip="$address" \
  ${labels:+--node-labels="$labels"} \
  "$@"
