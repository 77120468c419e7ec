# The pod network `calico`. Its manifest belongs to a version of Calico, so it is given.
# The tests evaluate this, and no cluster of theirs runs it.
{
  config,
  lib,
  ...
}:
let
  inherit (lib) mkOption types;
  cfg = config.nixbench.kubernetes;
in
{
  # interface
  options.nixbench.kubernetes.cni.calico.manifest = mkOption {
    type = types.nullOr types.path;
    default = null;
    example = lib.literalExpression ''
      pkgs.fetchurl {
        url = "https://raw.githubusercontent.com/projectcalico/calico/v3.30.3/manifests/calico.yaml";
        hash = "sha256-…";
      }
    '';
    description = ''
      Calico's manifest. Calico finds out the pod network by itself. The tests of nixbench only evaluate
      this: they run no cluster with Calico.
    '';
  };

  # implementation
  config = lib.mkIf (cfg.role != null && cfg.cni.name == "calico") {
    assertions = [
      {
        assertion = cfg.cni.calico.manifest != null;
        message = "nixbench.kubernetes.cni.name is calico, but nixbench.kubernetes.cni.calico.manifest is not set; set it to Calico's calico.yaml, by pkgs.fetchurl for example.";
      }
    ];
    nixbench.kubernetes.manifests = lib.mkIf (cfg.cni.calico.manifest != null) (
      lib.mkBefore [ cfg.cni.calico.manifest ]
    );
    # BGP, Typha, VXLAN.
    networking.firewall = lib.mkIf cfg.openFirewall {
      allowedTCPPorts = [
        179
        5473
      ];
      allowedUDPPorts = [ 4789 ];
    };
  };
}
