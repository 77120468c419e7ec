# PROGRAM [ARGUMENT...]: run the kubelet as the node that this is. Of arguments given
# twice the last one counts, so kubeadm's flags come first. One that kubeadm writes up to 1.34
# is unknown to the kubelets after it; the runtime's settings say the same.
set -eu
kubelet=$1
shift
flags=
for flag in ${KUBELET_KUBEADM_ARGS:-}; do
  case $flag in --pod-infra-container-image=*) ;; *) flags="$flags $flag" ;; esac
done
name=$(jq -r .name "$NODE_FILE")
address=$(jq -r .address "$NODE_FILE")
# Only a node that registers reads them; of one that has none, nixbench sees to it.
labels=
[ ! -s "$REGISTRATION" ] || labels=$(jq -r '.labels | to_entries | map("\(.key)=\(.value)") | join(",")' "$REGISTRATION")

# Packets to a Service for which kube-proxy has no rules yet: whoever let them go would
# remember where to, and send what follows after them, for up to half a minute, although the rules
# are there by then. Dropped, they are sent again after a second, and get through.
# Those of other settings go.
delete_rules filter nixbench-services
for chain in ${SERVICES:+FORWARD OUTPUT}; do
  rule="$chain -d $SERVICES -m comment --comment nixbench-services -j DROP"
  # shellcheck disable=SC2086 # words
  iptables -w -A $rule || echo "No rule for Services that are not there yet." >&2
done

# shellcheck disable=SC2086 # kubeadm's flags are words
exec "$kubelet" \
  --bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf \
  --kubeconfig=/etc/kubernetes/kubelet.conf \
  $flags \
  --config="$CONFIG" \
  --hostname-override="$name" \
  --node-ip="$address" \
  ${labels:+--node-labels="$labels"} \
  "$@"
