{
  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-25.05";
  inputs.nixbench.url = "github:nixbench/nixbench";

  outputs =
    { nixpkgs, nixbench, ... }:
    {
      # nixbench reads this output: `nixbench plan`, `nixbench apply`.
      nixbenchHive = nixbench.lib.hive {
        inherit nixpkgs;
        hive = ./hive.nix;
      };

      # If nixbench is not installed: `nix run .#deploy`, `nix run .#nixbench -- plan`.
      apps.x86_64-linux = {
        deploy = nixbench.lib.mkDeployApp { system = "x86_64-linux"; };
        nixbench = nixbench.apps.x86_64-linux.default;
      };
    };
}
