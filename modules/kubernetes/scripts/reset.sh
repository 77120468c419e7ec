# Make the node forget the cluster: what kubeadm knows of, and what we do. Its data in
# etcd go as well, so a control plane must have left the cluster before.
set -u
[ "${1:-}" = --yes ] || { echo "usage: nixbench-kubernetes-reset --yes" >&2; exit 2; }
systemctl stop nixbench-kubernetes.service
kubeadm reset --force --cri-socket "$CRI_SOCKET" || exit
rm -rf /etc/kubernetes/pki /etc/kubernetes/*.conf /etc/kubernetes/manifests/* /var/lib/nixbench/kubernetes /run/nixbench/kubernetes \
  /run/nixbench/kubernetes.json /var/lib/nixbench/kubernetes.json
