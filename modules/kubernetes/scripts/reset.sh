# Remove the cluster's data from the node: the files of kubeadm and of nixbench, including the data of etcd. So a control plane
# must have left the cluster before. With --forgotten, the cluster has no Node object for this node any more, and kubeadm does not
# contact the API, which could take minutes.
[ "${1:-}" = --yes ] || { echo "usage: nixbench-kubernetes-reset --yes [--forgotten]" >&2; exit 2; }
kubeconfig=/etc/kubernetes/admin.conf
[ "${2:-}" != --forgotten ] || kubeconfig=/dev/null
systemctl stop nixbench-kubernetes.service
# Delete the records first, so that an interrupted reset does not leave a node that counts as a member.
rm -rf "$records" "$work" /run/nixbench/kubernetes.json /var/lib/nixbench/kubernetes.json
delete_rules filter nixbench-services
kubeadm reset --force --cri-socket "$CRI_SOCKET" --kubeconfig "$kubeconfig" || exit
rm -rf /etc/kubernetes/pki /etc/kubernetes/*.conf /etc/kubernetes/manifests/*
