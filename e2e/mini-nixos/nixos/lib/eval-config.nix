# Evaluate a NixOS configuration: nixpkgs' call shape and result.
evalArgs@{
  modules,
  # null: the configuration must say it, in nixpkgs.hostPlatform.
  system ? builtins.currentSystem,
  pkgs ? null,
  baseModules ? import ../modules/module-list.nix,
  extraModules ? [ ],
  extraArgs ? { },
  specialArgs ? { },
  prefix ? [ ],
  check ? true,
  lib ? import ../../lib,
  modulesLocation ? (builtins.unsafeGetAttrPos "modules" evalArgs).file or null,
}:
let
  fromArguments = {
    _file = ./eval-config.nix;
    key = toString ./eval-config.nix;
    config = lib.mkMerge (
      [
        {
          _module.args = { inherit baseModules extraModules modules; }
          // extraArgs;
        }
      ]
      ++ lib.optional (!check) { _module.check = lib.mkDefault false; }
      ++ lib.optional (system != null) { nixpkgs.system = lib.mkDefault system; }
      ++ lib.optional (pkgs != null) { _module.args.pkgs = lib.mkForce pkgs; }
    );
  };

  # Errors name the file that called us, where modules are written in place.
  located =
    if modulesLocation == null then
      modules
    else
      map (lib.setDefaultModuleLocation modulesLocation) modules;

  withExtras =
    evaluation:
    evaluation
    // {
      inherit extraArgs lib;
      inherit (evaluation._module.args) pkgs;
      extendModules = args: withExtras (evaluation.extendModules args);
    };
in
withExtras (
  lib.evalModules {
    class = "nixos";
    inherit prefix;
    modules = baseModules ++ extraModules ++ [ fromArguments ] ++ located;
    specialArgs = { modulesPath = toString ../modules; }
    // specialArgs;
  }
)
