{
  description = "NixOS clusters from a hive and an empty hypervisor";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-25.05";

  outputs =
    { nixpkgs, ... }:
    let
      hive = import ./hive.nix;
    in
    {
      # The reference cluster: `nixbench eval` in this folder.
      nixbenchHive = hive // {
        meta = hive.meta // {
          nixpkgs = import nixpkgs { system = "x86_64-linux"; };
        };
      };
    };
}
