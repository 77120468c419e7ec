# A node from which users submit jobs.
{
  imports = [ ./default.nix ];
  nixbench.slurm.role = "login";
}
