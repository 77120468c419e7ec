# What nixbench has to know of the node to look after the cluster as a whole.
{
  config,
  lib,
  options,
  ...
}:
let
  inherit (lib) mkOption types;
  cfg = config.nixbench.kubernetes;
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
      settings = {
        inherit (cfg) probe version;
        inherit (cfg.secrets) permit;
      };
    };
  };
}
