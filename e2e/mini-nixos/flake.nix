{
  description = "A strict subset of nixpkgs and NixOS for tests";

  outputs =
    { self }:
    let
      lib = import ./lib;
      forEachSystem = lib.genAttrs lib.systems.flakeExposed;
    in
    {
      lib = lib.extend (
        final: _prev: {
          # A flake has no current system: NixOS takes it from nixpkgs.hostPlatform.
          nixosSystem =
            args:
            import ./nixos/lib/eval-config.nix (
              {
                lib = final;
                system = null;
                modules = args.modules ++ [
                  { config.system.configurationRevision = final.mkOptionDefault (self.rev or null); }
                ];
              }
              // builtins.removeAttrs args [ "modules" ]
            );
        }
      );

      legacyPackages = forEachSystem (system: import ./. { inherit system; });
    };
}
