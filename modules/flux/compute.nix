# A node that runs jobs.
{
  imports = [ ./default.nix ];
  nixbench.flux.role = "compute";
}
