# Settings of the node's kernel, network and firewall.
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

    # A container uses the kernel and the modules of its host.
    boot.kernelModules = lib.mkIf (!config.boot.isContainer) [
      "br_netfilter"
      "overlay"
    ];
    # Sysctls of a network namespace. A container has its own; it cannot set those of its host.
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

    # Interfaces of pods must not get addresses or default routes by DHCP.
    networking.dhcpcd.denyInterfaces = [
      "veth*"
      "cni*"
      "flannel*"
      "cali*"
      "tunl*"
      "vxlan*"
    ];
    # By default, networkd deletes routes that it did not add, such as those to pods, when it restarts.
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
      # A pod's replies may use another route than the requests.
      checkReversePath = mkDefault "loose";
    };
  };
}
