# The module of a role with the controller: the node with slurmctld, which keeps the queue of jobs.
{
  imports = [ ./default.nix ];
  nixbench.slurm.role = "controller";
}
