# Container images that a node loads into its container runtime before it joins, so that a cluster needs no registry.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib) mkOption types;
  cfg = config.nixbench.kubernetes;
in
{
  # interface
  options.nixbench.kubernetes.images = mkOption {
    type = types.listOf types.path;
    default = [ ];
    example = lib.literalExpression ''
      [ (pkgs.dockerTools.pullImage { imageName = "registry.k8s.io/pause"; /* … */ }) ]
    '';
    description = ''
      Archives of images, as `docker save` or `skopeo copy … oci-archive:` write them, which are loaded into the
      container runtime before the node joins. A path in quotes is a file on the node.
    '';
  };

  # implementation
  config.nixbench.kubernetes.bootstrap = lib.mkIf (cfg.role != null) {
    path =
      [
        pkgs.gnutar
        pkgs.gzip
        pkgs.xz
        pkgs.zstd
      ]
      ++ {
        containerd = [ pkgs.containerd ];
        cri-o = [ pkgs.skopeo ];
      }
      .${cfg.containerRuntime.name};
    environment.IMAGES = pkgs.writeText "images" (lib.concatMapStrings (i: "${i}\n") cfg.images);
    environment.RUNTIME = cfg.containerRuntime.name;
    # The names of the images that CRI-O must pin. CRI-O reads only one list of pinned images, so a script on the node writes the
    # list. The script adds the images that the hive pins.
    environment.PINNED = lib.mkIf (cfg.containerRuntime.name == "cri-o") (
      toString (config.virtualisation.cri-o.settings.crio.image.pinned_images or [ ])
    );
  };
}
