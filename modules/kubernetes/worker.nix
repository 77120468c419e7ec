# A worker: a node that runs the pods of users.
{
  imports = [ ./default.nix ];
  nixbench.kubernetes.role = "worker";
}
