# The module of a role with login nodes, on which users submit jobs.
{
  imports = [ ./default.nix ];
  nixbench.slurm.role = "login";
}
