# Remove the cluster's data from the node: the files of kubeadm and of nixbench. This includes the data of etcd, so a control
# plane must have left the cluster before. With --forgotten, kubeadm does not contact the API, which could take minutes: the
# cluster no longer has a Node object for this node.
[ "${1:-}" = --yes ] || { echo "usage: nixbench-kubernetes-reset --yes [--forgotten]" >&2; exit 2; }
kubeconfig=/etc/kubernetes/admin.conf
[ "${2:-}" != --forgotten ] || kubeconfig=/dev/null
systemctl stop nixbench-kubernetes.service
# Delete the records first, so that after an interrupted reset the node is not taken for a member.
rm -rf "$records" "$work" /run/nixbench/kubernetes.json /var/lib/nixbench/kubernetes.json
delete_rules filter nixbench-services
kubeadm reset --force --cri-socket "$CRI_SOCKET" --kubeconfig "$kubeconfig" || exit
rm -rf /etc/kubernetes/pki /etc/kubernetes/*.conf /etc/kubernetes/manifests/*
