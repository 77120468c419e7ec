# How pods reach each other. Each kind is a file of its own.
{ config, lib, ... }:
let
  inherit (lib) mkOption types;
  cfg = config.nixbench.kubernetes;
in
{
  # interface
  options.nixbench.kubernetes = {
    cni.name = mkOption {
      type = types.enum [
        "bridge"
        "flannel"
        "calico"
        "none"
      ];
      default = "bridge";
      example = "flannel";
      description = ''
        The pod network. `bridge` needs no image and no daemon: every node has a subnet of its own and
        static routes to the others, so nodes must share one network. `none` leaves it to `manifests`.
        The tests run clusters with `bridge` and `flannel`; `calico` they only evaluate.
      '';
    };
    cni.plugins = mkOption {
      type = types.listOf types.str;
      default = [
        "bandwidth"
        "bridge"
        "firewall"
        "host-local"
        "loopback"
        "portmap"
        "tuning"
      ];
      example = [ "loopback" ];
      description = "Plugins of `pkgs.cni-plugins` to link into /opt/cni/bin.";
    };
    manifests = mkOption {
      type = types.listOf types.path;
      default = [ ];
      example = lib.literalExpression "[ ./dashboard.yaml ]";
      description = ''
        Manifests that the first control plane applies when the cluster is there, and again when they
        change. What goes from the list stays in the cluster.
      '';
    };
  };

  # implementation
  config = lib.mkIf (cfg.role != null) {
    assertions = [
      {
        assertion = lib.elem "loopback" cfg.cni.plugins;
        message = "nixbench.kubernetes.cni.plugins lacks loopback, which every pod network needs; add it.";
      }
    ];
  };
}
