# SLURM's commands, such as srun. NixOS puts wrappers of the commands on PATH. The wrappers set SLURM_CONF to a slurm.conf in the
# Nix store of the node. This is wrong in two ways:
#
# - Only the controller has a complete slurm.conf.
# - SLURM_CONF is already set in a batch job. The wrappers of some NixOS releases then replace the arguments
#   by the name of the program, so that srun in a batch job calls itself without end.
#
# So this module puts the commands themselves before the wrappers on PATH. On the controller, the commands read /etc/slurm. On
# other nodes, they read the configuration that slurmd or sackd has fetched.
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
