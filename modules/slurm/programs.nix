# The commands, such as srun. NixOS puts wrappers of the commands on PATH, which set SLURM_CONF to a
# slurm.conf in the store of the node. This is wrong in two ways:
#
# - Only the controller has a complete slurm.conf.
# - SLURM_CONF is already set in a batch job. The wrappers of some NixOS releases then replace the arguments
#   by the name of the program, so that srun in a batch job calls itself without end.
#
# So the commands themselves precede the wrappers. On the controller they read /etc/slurm, on other nodes
# the configuration that slurmd or sackd has fetched.
{
  config,
  lib,
  ...
}:
let
  cfg = config.nixbench.slurm;
in
{
  config = lib.mkIf cfg.configured {
    services.slurm = {
      inherit (cfg) package;
      enableStools = cfg.role == "login";
      # Link /etc/slurm to the folder into which slurmd and sackd write the configuration that they fetch.
      etcSlurm = lib.mkIf (cfg.role != "controller") "/run/slurm/conf";
    };
    environment.systemPackages = [ (lib.hiPrio cfg.package) ];
    environment.etc.slurm = lib.mkIf (cfg.role == "controller") {
      source = config.services.slurm.etcSlurm;
    };
  };
}
