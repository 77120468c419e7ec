# Let nodes join with the token that is in place. Not `kubeadm token create`: there the
# token is an argument, which everybody on the node can read.
[ -s "$JOIN_TOKEN" ] || { echo "There is no token in $JOIN_TOKEN." >&2; exit 1; }
own=$(jq -er .address "$NODE_FILE") && admin_here || exit 1
file=$(documents init) || exit 1

publish_token() {
  kubectl --request-timeout=5s get --raw /readyz >/dev/null &&
    timeout 60 kubeadm init phase bootstrap-token --kubeconfig "$KUBECONFIG" --config "$file" --skip-token-print
}

# kubeadm writes the address of this server into the public ConfigMap; this control plane
# may be removed later, so the endpoint of the cluster takes its place.
publish_endpoint() {
  kubectl --request-timeout=30s -n kube-public get configmap cluster-info -o json |
    jq --arg server "https://$ENDPOINT:$PORT" '{ data: { kubeconfig: (.data.kubeconfig | sub("server: \\S+"; "server: " + $server)) } }' >"$work/cluster-info.json" &&
    kubectl --request-timeout=30s -n kube-public patch configmap cluster-info --type merge --patch-file "$work/cluster-info.json"
}

# Of the tokens that nixbench has made only the last one is valid. Their public halves are no secrets.
revoke_older_tokens() {
  kubectl --request-timeout=30s -n kube-system get secrets --field-selector type=bootstrap.kubernetes.io/token -o json |
    jq -r --arg mine "$mine" '.items[] | select(.metadata.name != $mine and .data.description == ("nixbench" | @base64)) | .metadata.name' |
    while read -r old; do
      kubectl --request-timeout=30s -n kube-system delete secret --ignore-not-found "$old" || exit
    done
}

read -r token <"$JOIN_TOKEN"
mine=bootstrap-token-${token%%.*}
token=

# The API server may restart between any two of these requests: at boot, and whenever a switch
# changes its manifest. Each step can be repeated.
end=$(($(date +%s) + 300))
until publish_token && publish_endpoint && revoke_older_tokens; do
  [ "$(date +%s)" -lt "$end" ] || { rm -f "$file"; exit 1; }
  sleep 1
done
rm -f "$file"
