# A node from which jobs are submitted: it has kubectl, and is no member of the cluster. It has no credentials: `nixbench bench` gives it some with
# the rights that a trial needs.
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
