# Let nodes join with the token that is in place. Not `kubeadm token create`: there the
# token is an argument, which everybody on the node can read.
[ -s "$JOIN_TOKEN" ] || { echo "There is no token in $JOIN_TOKEN." >&2; exit 1; }
file=$(documents init) || exit 1
export KUBECONFIG=/etc/kubernetes/admin.conf
kubeadm init phase bootstrap-token --config "$file" --skip-token-print
status=$?
rm -f "$file"
exit "$status"
