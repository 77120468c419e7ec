# Sets `deployment.engine`, and the settings that nixbench uses when it checks and changes the Kubernetes cluster.
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

  # The role of the nodes for which this system is made. The system depends only on the facts about nodes of this role, so control
  # planes do not change when workers are added or removed.
  role = if runtime.roles ? ${name} then name else (runtime.nodes.${name} or { }).role or null;
  nodesOfRole = lib.optionals (role != null) runtime.roles.${role};
in
{
  # interface
  options.nixbench.kubernetes.probe = {
    image = mkOption {
      type = types.str;
      default = "docker.io/library/busybox:1.37";
      example = "registry.example.org/busybox:1.37";
      description = "Image with an HTTP server and an HTTP client, for `nixbench check --deep`.";
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
      description = "Command in the image that serves HTTP on port 8080.";
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
      description = "Command in the image that fetches a URL. The URL is appended as the last argument.";
    };
  };

  # implementation
  config = lib.optionalAttrs (options ? deployment.engine) {
    deployment.engine = lib.mkIf (cfg.role != null) {
      kind = "kubernetes";
      inherit (cfg) role;
      oneByOne = cfg.role == "control-plane";
      order = if cfg.role == "control-plane" then 10 else 20;
      settings = {
        inherit (cfg) probe version;
        inherit (cfg.secrets) permit;
        inherit (cfg.endpoint) port;
        joinConfig = if cfg.generateSecrets then cfg.secrets.joinConfig else "";
        hollow = if cfg.role == "worker" then cfg.hollow.count else 0;
        labels = cfg.nodeLabels;
        taints = cfg.nodeTaints;
        # The number of days before expiry, or null if control planes do not renew their certificates.
        renewBefore = if cfg.certificates.renew then cfg.certificates.renewBefore else null;
      }
      // lib.optionalAttrs (cfg.role == "control-plane") { inherit (cfg) checks; };
    };

    nixbench.kubernetes.controlPlanes = lib.mkIf (cfg.role == "control-plane" && runtime != null) (
      lib.mkDefault (map (node: runtime.nodes.${node}.address) nodesOfRole)
    );
  };
}
