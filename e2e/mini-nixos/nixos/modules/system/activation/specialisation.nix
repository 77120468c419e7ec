# Variants of the system, which are built with it, and which can be activated instead of it.
{ config, extendModules, lib, ... }:
let
  inherit (lib) mkOption types;
  inherit (import ../../../lib/option.nix { inherit lib; }) option;

  # A variant must not have variants: the evaluation would never end.
  inherited = extendModules {
    modules = [
      (
        { lib, ... }:
        {
          specialisation = lib.mkOverride 0 { };
        }
      )
    ];
  };
in
{
  options.specialisation = option (types.attrsOf (
      types.submodule (
        { config, ... }:
        let
          base =
            if config.inheritParentConfig then inherited.type else throw "inheritParentConfig = false is not in the mini NixOS";
        in
        {
          options = {
            inheritParentConfig = option types.bool true "Whether the variant starts from this system.";
            configuration = mkOption {
              type = base;
              default = { };
              visible = "shallow";
              description = "What is different.";
            };
          };
        }
      )
    )) { } "Variants of this system.";

  config.system.systemBuilderCommands = ''
    mkdir "$out/specialisation"
    ${lib.concatStrings (
      lib.mapAttrsToList (
        name: s:
        "ln -s ${s.configuration.system.build.toplevel} \"$out/specialisation/\"${lib.escapeShellArg name}\n"
      ) config.specialisation
    )}
  '';
}
