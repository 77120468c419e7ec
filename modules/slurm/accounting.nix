# The node that stores which jobs have run: slurmdbd with its database. The cluster has accounting if the hive has
# a role with this module.
{
  imports = [ ./default.nix ];
  nixbench.slurm.role = "accounting";
}
