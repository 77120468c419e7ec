# shellcheck shell=sh disable=SC2034
# What a machine has in addition that can be a Kubernetes node: what kubeadm looks for
# before it does anything, and what the kubelet calls. Kubernetes itself and its
# images are not in here; they lie above (see e2e/kube).

packages="$packages
  containerd runc containernetworking-plugins
  conmon skopeo
  conntrack ethtool socat ebtables nftables jq
"
