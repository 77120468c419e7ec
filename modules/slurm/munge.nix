# The key of MUNGE, with which all nodes authenticate each other. The key is on the disk and not in /run, because a node that
# reboots needs it before nixbench can connect.
{
  config,
  lib,
  options,
  runtime,
  ...
}:
let
  inherit (lib) mkOption types;
  cfg = config.nixbench.slurm;
  fact = ((if runtime == null then { } else runtime).secrets or { }).munge or { };
in
{
  # interface
  options.nixbench.slurm = {
    mungeKey = mkOption {
      type = types.path;
      default = fact.path or "/var/lib/nixbench/secrets/munge.key";
      defaultText = lib.literalMD "`/var/lib/nixbench/secrets/munge.key`";
      example = "/var/lib/secrets/munge.key";
      description = "File with the key of MUNGE. It must belong to the user `munge`.";
    };
    generateSecrets = mkOption {
      type = types.bool;
      # true if nixbench evaluates the system, because only then the option `deployment.keys` exists.
      default = options ? deployment.keys;
      defaultText = lib.literalMD "true if nixbench deploys the node";
      example = false;
      description = ''
        Whether nixbench generates the key of MUNGE and uploads it to all nodes of the cluster. If false, you must
        write the same file to the path in `mungeKey` on each node.
      '';
    };
  };

  # implementation
  config = lib.mkMerge [
    (lib.mkIf cfg.configured {
      services.munge.enable = true;
      services.munge.password = cfg.mungeKey;
      systemd.services.munged = lib.mkIf cfg.generateSecrets {
        after = [ "munge-key.service" ];
        requires = [ "munge-key.service" ];
        # Restart munged when the key changes, because it reads the key only when it starts.
        restartTriggers = lib.optional (fact ? sha256) fact.sha256;
      };
    })
    (lib.optionalAttrs (options ? deployment.keys) {
      deployment.keys = lib.mkIf (cfg.role != null && cfg.generateSecrets) {
        munge = {
          name = "munge.key";
          destDir = "/var/lib/nixbench/secrets";
          user = "munge";
          group = "munge";
          permissions = "0400";
          restartUnits = lib.optional cfg.configured "munged.service";
          generated = {
            secret = "munge";
            kind = "random";
            bytes = 1024;
          };
        };
      };
    })
  ];
}
