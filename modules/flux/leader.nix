# The module of a role with the leader: the node of rank 0, whose broker has the queue of jobs and the scheduler. The leader runs
# no jobs.
{
  imports = [ ./default.nix ];
  nixbench.flux.role = "leader";
}
