# The node with the broker of rank 0, which has the queue of jobs and the scheduler. It runs no jobs.
{
  imports = [ ./default.nix ];
  nixbench.flux.role = "leader";
}
