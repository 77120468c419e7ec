# The settings of the kernel, the network and the firewall of a node.
{ config, lib, ... }:
let
  inherit (lib) mkDefault mkOption types;
  cfg = config.nixbench.kubernetes;
  port = p: { from = p; to = p; };
in
{
  # interface
  options.nixbench.kubernetes = {
    openFirewall = mkOption {
      type = types.bool;
      default = true;
      example = false;
      description = "Whether to open the ports that the node's role needs.";
    };
    nodePorts = {
      from = mkOption {
        type = types.port;
        default = 30000;
        example = 31000;
        description = "First port of NodePort services.";
      };
      to = mkOption {
        type = types.port;
        default = 32767;
        example = 31999;
        description = "Last port of NodePort services.";
      };
    };
  };

  # implementation
  config = lib.mkIf (cfg.role != null) {
    assertions = [
      {
        assertion = cfg.nodePorts.from <= cfg.nodePorts.to;
        message = "nixbench.kubernetes.nodePorts.from is above nixbench.kubernetes.nodePorts.to; exchange them.";
      }
    ];

    # Load no kernel modules in a container: a container uses the kernel of its host, and cannot load modules.
    boot.kernelModules = lib.mkIf (!config.boot.isContainer) [
      "br_netfilter"
      "overlay"
    ];
    # In a container, only the sysctls of its own network namespace can be set, and not those of the host.
    boot.kernel.sysctl = {
      "net.ipv4.ip_forward" = mkDefault 1;
    }
    // lib.optionalAttrs (!config.boot.isContainer) {
      "net.bridge.bridge-nf-call-iptables" = mkDefault 1;
      "net.bridge.bridge-nf-call-ip6tables" = mkDefault 1;
    };

    nixbench.kubernetes.apiServer.extraArgs = lib.mkIf
      (cfg.nodePorts.from != 30000 || cfg.nodePorts.to != 32767)
      { service-node-port-range = "${toString cfg.nodePorts.from}-${toString cfg.nodePorts.to}"; };

    # DHCP must not set addresses or default routes on the interfaces of pods.
    networking.dhcpcd.denyInterfaces = [
      "veth*"
      "cni*"
      "flannel*"
      "cali*"
      "tunl*"
      "vxlan*"
    ];
    # By default, networkd deletes routes of other programs when it restarts. With these settings, the routes to pods stay.
    systemd.network.config.networkConfig = {
      ManageForeignRoutes = mkDefault false;
      ManageForeignRoutingPolicyRules = mkDefault false;
    };

    networking.firewall = lib.mkIf cfg.openFirewall {
      allowedTCPPortRanges = [
        (port 10250)
        cfg.nodePorts
      ]
      ++ lib.optionals (cfg.role == "control-plane") [
        (port cfg.endpoint.port)
        {
          from = 2379;
          to = 2380;
        }
      ];
      allowedUDPPortRanges = [ cfg.nodePorts ];
      # Accept packets on any interface that has a route to their source, because the replies of a pod may use another route
      # than the requests.
      checkReversePath = mkDefault "loose";
    };
  };
}
