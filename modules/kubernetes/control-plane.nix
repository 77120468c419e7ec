# The module of a role with control planes: nodes with etcd, the API server, the controller manager and the scheduler.
{
  imports = [ ./default.nix ];
  nixbench.kubernetes.role = "control-plane";
}
