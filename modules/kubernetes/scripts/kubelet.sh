# PROGRAM [ARGUMENT...]: run the kubelet as the node that this is. Of arguments given
# twice the last one counts, so kubeadm's flags come first.
set -eu
kubelet=$1
shift
name=$(jq -r .name "$NODE_FILE")
address=$(jq -r .address "$NODE_FILE")
# Only a node that registers reads them; of one that has none, nixbench sees to it.
labels=
[ ! -s "$REGISTRATION" ] || labels=$(jq -r '.labels | to_entries | map("\(.key)=\(.value)") | join(",")' "$REGISTRATION")
# shellcheck disable=SC2086 # kubeadm's flags are words
exec "$kubelet" \
  --bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf \
  --kubeconfig=/etc/kubernetes/kubelet.conf \
  ${KUBELET_KUBEADM_ARGS:-} \
  --config="$CONFIG" \
  --hostname-override="$name" \
  --node-ip="$address" \
  ${labels:+--node-labels="$labels"} \
  "$@"
