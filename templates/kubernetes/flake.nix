{
  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-26.05";
  inputs.nixbench.url = "github:nixbench/nixbench";

  outputs =
    { nixpkgs, nixbench, ... }:
    {
      # nixbench reads this output: `nixbench plan`, `nixbench apply`.
      nixbenchHive = nixbench.lib.hive {
        inherit nixpkgs;
        hive = ./hive.nix;
        system = "x86_64-linux"; # of the machines; or aarch64-linux
      };

      # If nixbench is not installed: `nix run .#deploy`, `nix run .#nixbench -- plan`, on each system for which nixbench is built.
      apps = builtins.mapAttrs (system: apps: {
        deploy = nixbench.lib.mkDeployApp { inherit system; };
        nixbench = apps.default;
      }) nixbench.apps;
    };
}
