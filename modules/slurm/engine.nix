# Sets `deployment.engine`, with the settings that nixbench uses when it checks and changes the cluster. A
# login node is no member of the cluster.
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
    deployment.engine = lib.mkIf (cfg.role == "controller" || cfg.role == "compute") {
      kind = "slurm";
      inherit (cfg) role;
      oneByOne = cfg.role == "controller";
      order = if cfg.role == "controller" then 10 else 20;
      settings = {
        inherit (cfg) drainTimeout features;
        inherit (cfg.package) version;
      };
    };
  };
}
