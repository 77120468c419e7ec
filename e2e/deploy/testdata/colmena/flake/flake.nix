# Systems that are there for nixos-rebuild, too, and a hive that is made of them.
{
  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-24.11";

  outputs =
    { self, nixpkgs, ... }@inputs:
    let
      system = "x86_64-linux";
      host =
        name:
        nixpkgs.lib.nixosSystem {
          inherit system;
          specialArgs = { inherit inputs; };
          modules = [
            ./hosts/${name}
            {
              networking.hostName = name;
              networking.firewall.enable = false;
              system.stateVersion = "24.11";
            }
          ];
        };
    in
    {
      nixosConfigurations = nixpkgs.lib.genAttrs [ "alpha" "beta" ] host;

      colmena = {
        meta = {
          nixpkgs = import nixpkgs { inherit system; };
          nodeNixpkgs = builtins.mapAttrs (_: value: value.pkgs) self.nixosConfigurations;
          nodeSpecialArgs = builtins.mapAttrs (_: value: value._module.specialArgs) self.nixosConfigurations;
        };
      }
      // builtins.mapAttrs (name: value: {
        nixpkgs.system = value.config.nixpkgs.system;
        imports = value._module.args.modules;
        deployment = {
          targetHost = "${name}.flake.example";
          tags = [ name ];
        };
      }) self.nixosConfigurations;
    };
}
