# The options `deployment.*` for a system in a flake's `nixosConfigurations`. The nodes of a hive already have these options.
{ config, lib, ... }:
{
  imports = [
    ./deployment.nix
    ./engine.nix
    ./keys.nix
  ];

  # The system does not know its own name in the flake. nixbench uses the name `name` as the default of `deployment.targetHost`.
  _module.args.name = lib.mkDefault config.networking.hostName;
}
