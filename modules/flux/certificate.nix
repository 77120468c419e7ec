# The CurveZMQ key pair with which all brokers authenticate each other. The key pair is on the disk and not in /run, because a
# node that reboots needs it before nixbench can connect.
{
  config,
  lib,
  options,
  runtime,
  ...
}:
let
  inherit (lib) mkOption types;
  cfg = config.nixbench.flux;
  fact = ((if runtime == null then { } else runtime).secrets or { }).flux-curve or { };
in
{
  # interface
  options.nixbench.flux = {
    certificate = mkOption {
      type = types.str;
      default = fact.path or "/var/lib/nixbench/secrets/flux-curve.cert";
      defaultText = lib.literalMD "`/var/lib/nixbench/secrets/flux-curve.cert`";
      example = "/var/lib/secrets/curve.cert";
      description = "File with the key pair, as `flux keygen` writes it. It must belong to the user `flux`.";
    };
    generateSecrets = mkOption {
      type = types.bool;
      # The option `deployment.keys` exists only if nixbench evaluates the system.
      default = options ? deployment.keys;
      defaultText = lib.literalMD "true if nixbench deploys the node";
      example = false;
      description = ''
        Whether nixbench generates the key pair and uploads it to all nodes of the instance. If false, you must write the same
        file to the path in `certificate` on each node.
      '';
    };
  };

  # implementation
  config = lib.mkMerge [
    (lib.mkIf (cfg.configured && cfg.generateSecrets) {
      systemd.services.flux = {
        after = [ "flux-curve-key.service" ];
        requires = [ "flux-curve-key.service" ];
        # Restart the broker when the key pair changes, because it reads the file only when it starts.
        restartTriggers = lib.optional (fact ? sha256) fact.sha256;
      };
    })
    (lib.optionalAttrs (options ? deployment.keys) {
      deployment.keys = lib.mkIf (cfg.role != null && cfg.generateSecrets) {
        flux-curve = {
          name = "flux-curve.cert";
          destDir = "/var/lib/nixbench/secrets";
          user = "flux";
          group = "flux";
          permissions = "0400";
          restartUnits = lib.optional cfg.configured "flux.service";
          generated = {
            secret = "flux-curve";
            kind = "curve";
          };
        };
      };
    })
  ];
}
