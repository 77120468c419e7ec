# A node that only submits jobs: it has kubectl, but is no member of the cluster. It has no credentials. `nixbench bench` gives it
# credentials with only the rights that a trial needs.
{
  config,
  lib,
  options,
  ...
}:
{
  imports = [ ./default.nix ];

  config = lib.mkMerge [
    { environment.systemPackages = [ config.nixbench.kubernetes.package ]; }
    (lib.optionalAttrs (options ? deployment.client) { deployment.client = "kubernetes"; })
  ];
}
