# Kubernetes by kubeadm: all options; nothing happens until a node has a role. A role
# of the hive imports ./control-plane.nix or ./worker.nix, which also say which.
{
  imports = [
    ../runtime.nix
    ./audit.nix
    ./base.nix
    ./bootstrap.nix
    ./bridge.nix
    ./calico.nix
    ./certificates.nix
    ./cni.nix
    ./container-runtime.nix
    ./encryption.nix
    ./engine.nix
    ./flannel.nix
    ./hardening.nix
    ./images.nix
    ./kubeadm.nix
    ./kubelet.nix
    ./network.nix
    ./pace.nix
    ./secrets.nix
  ];
}
