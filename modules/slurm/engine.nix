# Sets `deployment.engine`, and the settings that nixbench uses when it checks and changes the SLURM cluster. A login node is no
# member of the cluster, but users can submit jobs on it.
{
  config,
  lib,
  options,
  ...
}:
let
  cfg = config.nixbench.slurm;
in
{
  config = lib.optionalAttrs (options ? deployment.engine) {
    deployment.client = lib.mkIf (cfg.role == "login") "slurm";
    deployment.engine = lib.mkIf (lib.elem cfg.role [ "accounting" "controller" "compute" ]) {
      kind = "slurm";
      inherit (cfg) role;
      oneByOne = cfg.role != "compute";
      # Nodes change in this order, because slurmdbd must not be older than slurmctld, nor slurmctld older than slurmd.
      order =
        {
          accounting = 0;
          controller = 10;
          compute = 20;
        }
        .${cfg.role};
      settings = {
        inherit (cfg) drainTimeout features;
        accounting = cfg.role == "controller" && cfg.accountingRole == cfg.controllerRole;
        inherit (cfg.package) version;
        hollow = if cfg.role == "compute" then cfg.hollow else 0;
      };
    };
  };
}
