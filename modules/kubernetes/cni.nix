# The options of the pod network. bridge.nix implements the network `bridge`, and flannel.nix implements `flannel`.
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
        "none"
      ];
      default = "bridge";
      example = "flannel";
      description = ''
        The pod network. `bridge` needs no image: every node has a subnet and static routes, so all nodes must be
        in one network. With `none`, add a pod network to `manifests`.
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
        Manifests that the first control plane applies, again when one changes. The objects of a manifest that is
        removed from the list stay in the cluster.
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
