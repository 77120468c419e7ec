# A node from which users submit jobs. It runs no daemon of SLURM.
{
  imports = [ ./default.nix ];
  nixbench.slurm.role = "login";
}
