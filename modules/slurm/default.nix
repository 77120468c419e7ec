# All modules of SLURM. They change nothing on a node without `nixbench.slurm.role`. A role of
# the hive imports ./controller.nix, ./compute.nix, ./login.nix or ./accounting.nix, which import this file and
# set that option.
{
  imports = [
    ../runtime.nix
    ./accounting-daemon.nix
    ./base.nix
    ./config.nix
    ./controller-daemon.nix
    ./compute-daemon.nix
    ./engine.nix
    ./handover.nix
    ./login-daemon.nix
    ./munge.nix
    ./programs.nix
    ./static-nodes.nix
  ];
}
