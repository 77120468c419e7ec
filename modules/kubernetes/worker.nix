# A node that runs what users ask for.
{
  imports = [ ./default.nix ];
  nixbench.kubernetes.role = "worker";
}
