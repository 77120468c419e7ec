# Let nodes join with the current join token. `kubeadm token create` is not used, because it takes the token as an
# argument, which all users on the node can read.
progress=log
work=$work/token # a folder of its own, because nixbench-kubernetes.service deletes kubeadm's configuration when the node is ready
start_program
[ -s "$JOIN_TOKEN" ] || exit_with_error "There is no token in $JOIN_TOKEN."
read_identity && use_admin_kubeconfig || exit 1
file=$(write_kubeadm_config init) || exit 1
trap 'rm -f "$file"' EXIT # it contains the token

publish_token() {
  kubectl --request-timeout=5s get --raw /readyz >/dev/null &&
    timeout 60 kubeadm init phase bootstrap-token --kubeconfig "$KUBECONFIG" --config "$file" --skip-token-print
}

# publish_endpoint: set the cluster's endpoint in the public ConfigMap. kubeadm writes the address of this API server
# into it, and this control plane may be removed later.
publish_endpoint() {
  kubectl --request-timeout=30s -n kube-public get configmap cluster-info -o json |
    jq --arg server "https://$ENDPOINT:$PORT" '{ data: { kubeconfig: (.data.kubeconfig | sub("server: \\S+"; "server: " + $server)) } }' >"$work/cluster-info.json" &&
    kubectl --request-timeout=30s -n kube-public patch configmap cluster-info --type merge --patch-file "$work/cluster-info.json"
}

# revoke_older_tokens: of the tokens that nixbench has created, only the current one stays valid. The names of their
# Secrets contain the tokens' public IDs.
revoke_older_tokens() {
  kubectl --request-timeout=30s -n kube-system get secrets --field-selector type=bootstrap.kubernetes.io/token -o json |
    jq -r --arg current "$current" '.items[] | select(.metadata.name != $current and .data.description == ("nixbench" | @base64)) | .metadata.name' |
    while read -r old; do
      kubectl --request-timeout=30s -n kube-system delete secret --ignore-not-found "$old" || exit
    done
}

read -r token <"$JOIN_TOKEN"
current=bootstrap-token-${token%%.*}
token=

# The API server may restart between any two of these requests: at boot, and whenever a switch changes its manifest.
# Each step can be repeated.
end=$(($(date +%s) + 300))
until publish_token && publish_endpoint && revoke_older_tokens; do
  [ "$(date +%s)" -lt "$end" ] || exit 1
  sleep 1
done
