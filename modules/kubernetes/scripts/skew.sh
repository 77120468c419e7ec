# VERSION: refuse a switch to a release that kubeadm cannot go to. Afterwards it would be
# too late: the kubelet would be newer than the API already.
new=$1
old=$(cat /var/lib/nixbench/kubernetes/version 2>/dev/null) || exit 0
minor() {
  minor=${1#*.}
  echo "${minor%%.*}"
}
if [ $(($(minor "$new") - $(minor "$old"))) -gt 1 ]; then
  echo "The control plane runs Kubernetes $old, and kubeadm goes from one minor release to the next only. Set nixbench.kubernetes.package to release 1.$(($(minor "$old") + 1)) first, then to $new." >&2
  exit 1
fi
