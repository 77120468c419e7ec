# The module of a role whose nodes run Flux jobs.
{
  imports = [ ./default.nix ];
  nixbench.flux.role = "compute";
}
