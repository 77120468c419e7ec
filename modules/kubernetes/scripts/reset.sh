# Make the node forget the cluster: what kubeadm knows of, and what we do. Its data in
# etcd go as well, so a control plane must have left the cluster before. --forgotten says that
# the cluster knows nothing of the node any more: then it is not asked, which could take minutes.
set -u
[ "${1:-}" = --yes ] || { echo "usage: nixbench-kubernetes-reset --yes [--forgotten]" >&2; exit 2; }
ask=/etc/kubernetes/admin.conf
[ "${2:-}" != --forgotten ] || ask=/dev/null
systemctl stop nixbench-kubernetes.service
# First, so that one that is cut short is not taken for a member.
rm -rf /var/lib/nixbench/kubernetes /run/nixbench/kubernetes /run/nixbench/kubernetes.json /var/lib/nixbench/kubernetes.json
delete_rules filter nixbench-services
kubeadm reset --force --cri-socket "$CRI_SOCKET" --kubeconfig "$ask" || exit
rm -rf /etc/kubernetes/pki /etc/kubernetes/*.conf /etc/kubernetes/manifests/*
