# Variants of the system, built with it and switched to in its place.
{
  config,
  extendModules,
  lib,
  ...
}:
let
  inherit (lib) mkOption types;

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
  options.specialisation = mkOption {
    default = { };
    example = lib.literalExpression ''{ fewJobs.configuration = { nix.settings.max-jobs = 1; }; }'';
    description = "Variants of this system.";
    type = types.attrsOf (
      types.submodule (
        { config, ... }:
        let
          base =
            if config.inheritParentConfig then inherited.type else throw "inheritParentConfig = false is not in the mini NixOS";
        in
        {
          options = {
            inheritParentConfig = mkOption {
              type = types.bool;
              default = true;
              description = "Whether the variant starts from this system.";
            };
            configuration = mkOption {
              type = base;
              default = { };
              visible = "shallow";
              description = "What is different.";
            };
          };
        }
      )
    );
  };

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
