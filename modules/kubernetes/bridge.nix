# The pod network `bridge`. The N-th address of the node network gets the N-th subnet of the pod network, and each node has a
# route to the subnet of each possible address. So no node needs a list of nodes, and existing nodes do not change when a node is
# added.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  ip = import ./ip.nix { inherit lib; };
  cfg = config.nixbench.kubernetes;
  nodes = ip.parse cfg.nodeCidr;
  pods = ip.parse cfg.podCidr;
  subnet = pods.prefix + 32 - nodes.prefix;
  maxPods = cfg.settings.kubelet.maxPods or 110;
  # Whether a subnet with the prefix length p has enough addresses for maxPods pods. Three addresses of a subnet are not for pods:
  # that of the network, that of the gateway, and the broadcast address.
  enough = p: p <= 30 && ip.pow2 (32 - p) - 3 >= maxPods;
  largest = lib.findFirst enough 0 (lib.genList (i: 30 - i) 31);
  wanted = largest + nodes.prefix - 32;
in
{
  # implementation
  config = lib.mkIf (cfg.role != null && cfg.cni.name == "bridge") {
    assertions = [
      {
        assertion = nodes.prefix >= 20;
        message = "nixbench.kubernetes.nodeCidr (${cfg.nodeCidr}) has too many addresses for a route to each; make it a /20 or smaller, or set nixbench.kubernetes.cni.name to flannel.";
      }
      {
        assertion = nodes.prefix < 20 || enough subnet;
        message = "nixbench.kubernetes.podCidr (${cfg.podCidr}) is too small: each address of nixbench.kubernetes.nodeCidr (${cfg.nodeCidr}) needs a subnet for ${toString maxPods} pods. Make podCidr a /${toString wanted} or larger, or lower nixbench.kubernetes.settings.kubelet.maxPods.";
      }
    ];

    # Turn this off, because otherwise the controller manager would write other subnets into the Node objects than those that the
    # nodes compute.
    nixbench.kubernetes.controllerManager.extraArgs.allocate-node-cidrs = lib.mkDefault false;

    networking.firewall.trustedInterfaces = lib.mkIf cfg.openFirewall [ "cni0" ];

    systemd.services.nixbench-pod-network = {
      description = "Pod network of the node, and routes to the other nodes' pod networks";
      wantedBy = [ "multi-user.target" ];
      wants = [ "network-online.target" ];
      after = [ "network-online.target" ];
      path = [
        pkgs.diffutils
        pkgs.iproute2
        pkgs.iptables
        pkgs.jq
      ];
      environment = {
        NODE_FILE = config.nixbench.nodeFile;
        NODES_FIRST = toString nodes.first;
        NODES = toString nodes.size;
        PODS_FIRST = toString pods.first;
        POD_CIDR = cfg.podCidr;
        SUBNET = toString subnet;
      };
      serviceConfig = {
        Type = "oneshot";
        SyslogIdentifier = "nixbench-pod-network";
        ExecStart = pkgs.writeShellScript "nixbench-pod-network" (builtins.readFile ./scripts/pod-network.sh);
      };
    };
    # A timer runs the service repeatedly, because a network manager that reconfigures the interface may delete the routes.
    systemd.timers.nixbench-pod-network = {
      description = "Restore the routes between pods periodically";
      wantedBy = [ "timers.target" ];
      timerConfig = {
        OnActiveSec = "5s";
        OnUnitInactiveSec = "30s";
        AccuracySec = "1s";
      };
    };
  };
}
