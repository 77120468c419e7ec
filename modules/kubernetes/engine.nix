# What nixbench has to know of the node to look after the cluster as a whole.
{
  config,
  lib,
  name,
  options,
  runtime,
  ...
}:
let
  inherit (lib) mkOption types;
  cfg = config.nixbench.kubernetes;

  # The nodes of the role that this system is for. Of all facts about nodes only these are
  # read, so control planes do not change when workers come and go.
  role = if runtime.roles ? ${name} then name else (runtime.nodes.${name} or { }).role or null;
  fellows = lib.optionals (role != null) runtime.roles.${role};
in
{
  # interface
  options.nixbench.kubernetes.probe = {
    image = mkOption {
      type = types.str;
      default = "docker.io/library/busybox:1.37";
      example = "registry.example.org/busybox:1.37";
      description = "Image with a web server and a client, for `nixbench check --deep`.";
    };
    serve = mkOption {
      type = types.listOf types.str;
      default = [
        "httpd"
        "-f"
        "-p"
        "8080"
        "-h"
        "/etc"
      ];
      description = "Command in it that serves HTTP on port 8080.";
    };
    get = mkOption {
      type = types.listOf types.str;
      default = [
        "wget"
        "-q"
        "-T"
        "3"
        "-O"
        "-"
      ];
      description = "Command in it that fetches the URL which is added to it.";
    };
  };

  # implementation
  config = lib.optionalAttrs (options ? deployment.engine) {
    deployment.engine = lib.mkIf (cfg.role != null) {
      kind = "kubernetes";
      inherit (cfg) role;
      oneByOne = cfg.role == "control-plane";
      settings = {
        inherit (cfg) probe version;
        inherit (cfg.secrets) permit;
        inherit (cfg.endpoint) port;
        labels = cfg.nodeLabels;
        taints = cfg.nodeTaints;
        # Days; null where nobody renews.
        renewBefore = if cfg.certificates.renew then cfg.certificates.renewBefore else null;
      };
    };

    nixbench.kubernetes.controlPlanes = lib.mkIf (cfg.role == "control-plane" && runtime != null) (
      lib.mkDefault (map (node: runtime.nodes.${node}.address) fellows)
    );
  };
}
