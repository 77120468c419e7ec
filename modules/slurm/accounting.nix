# The module of a role with accounting: the node with slurmdbd and its database, which stores which jobs have run. The cluster has
# accounting if the hive has a role with this module.
{
  imports = [ ./default.nix ];
  nixbench.slurm.role = "accounting";
}
