# The node that controls the cluster: slurmctld, which keeps the queue of jobs.
{
  imports = [ ./default.nix ];
  nixbench.slurm.role = "controller";
}
