# The cleanup that the next NixOS system runs when a node changes from Kubernetes to another scheduler. It ends pods, their
# networks and their firewall rules, which outlive the kubelet and the container runtime. The data of etcd, the certificates, the
# images and the record of the node's membership stay. So a node that changes back to Kubernetes is the same member of the same
# cluster.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  cfg = config.nixbench.kubernetes;
  proxyMode = cfg.settings.proxy.mode or "iptables";
in
{
  imports = [ ../handover ];

  # implementation
  config.nixbench.handover.schedulers.kubernetes = lib.mkIf (cfg.role != null) {
    units = [
      (lib.removeSuffix ".service" cfg.containerRuntime.unit)
      "kubelet"
    ]
    ++ lib.optional cfg.configured "nixbench-kubernetes"
    ++ lib.optional (cfg.cni.name == "bridge") "nixbench-pod-network";
    path = lib.optional (proxyMode == "nftables") pkgs.nftables;
    cleanup = lib.mkBefore (
      "POD_CIDR=${cfg.podCidr}\n"
      + builtins.readFile ./scripts/cleanup.sh
      + lib.optionalString (proxyMode == "nftables") ''
        for family in ip ip6; do nft delete table "$family" kube-proxy 2>/dev/null || :; done
      ''
    );
  };
}
