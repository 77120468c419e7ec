# shellcheck shell=sh disable=SC2034
# Additional packages of machines that can be Kubernetes nodes: programs that kubeadm's
# preflight requires, and that the kubelet calls. Kubernetes itself and its images are in a
# layer above (see e2e/kube).

packages="$packages
  containerd runc containernetworking-plugins
  conmon skopeo
  conntrack ethtool socat ebtables nftables jq htop
"
