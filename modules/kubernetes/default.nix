# All modules of Kubernetes with kubeadm. They change nothing on a node without
# `nixbench.kubernetes.role`. A role of the hive imports ./control-plane.nix or
# ./worker.nix, which import this file and set that option.
{
  imports = [
    ../before-switch.nix
    ../runtime.nix
    ./audit.nix
    ./base.nix
    ./bootstrap.nix
    ./bridge.nix
    ./certificates.nix
    ./checks.nix
    ./cni.nix
    ./container-runtime.nix
    ./encryption.nix
    ./engine.nix
    ./flannel.nix
    ./handover.nix
    ./hardening.nix
    ./hollow.nix
    ./images.nix
    ./kubeadm.nix
    ./kubelet.nix
    ./latency.nix
    ./network.nix
    ./schedulers.nix
    ./secrets.nix
    ./volcano.nix
  ];
}
