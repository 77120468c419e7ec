# A node with etcd and the API server.
{
  imports = [ ./default.nix ];
  nixbench.kubernetes.role = "control-plane";
}
