{
  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-25.05";
  inputs.nixbench.url = "github:nixbench/nixbench";

  outputs =
    { nixpkgs, nixbench, ... }:
    {
      # nixbench finds this: `nixbench plan`, `nixbench apply`.
      nixbenchHive = nixbench.lib.hive {
        inherit nixpkgs;
        hive = ./hive.nix;
      };

      # Without an installed nixbench: `nix run .#deploy`, `nix run .#nixbench -- plan`.
      apps.x86_64-linux = {
        deploy = nixbench.lib.mkDeployApp { system = "x86_64-linux"; };
        nixbench = nixbench.apps.x86_64-linux.default;
      };
    };
}
