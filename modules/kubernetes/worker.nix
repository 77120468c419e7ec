# The module of a role with workers: nodes that run the pods of users.
{
  imports = [ ./default.nix ];
  nixbench.kubernetes.role = "worker";
}
