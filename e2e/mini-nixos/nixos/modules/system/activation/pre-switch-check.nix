# Questions asked before a switch changes anything.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib) mkOption types;
in
{
  options.system = {
    preSwitchChecks = mkOption {
      type = types.attrsOf types.str;
      default = { };
      example = lib.literalExpression ''
        { failsEveryTime = "false"; }
      '';
      description = "Shell commands with the new system's path as $1 and the action as $2.";
    };
    preSwitchChecksScript = mkOption {
      type = types.pathInStore;
      internal = true;
      readOnly = true;
      default = lib.getExe (
        pkgs.writeShellApplication {
          name = "pre-switch-checks";
          text = lib.concatStrings (
            lib.mapAttrsToList (name: check: ''
              # pre-switch check ${name}
              if ! (
                ${check}
              ); then
                echo "Pre-switch check '${name}' failed" >&2
                exit 1
              fi
            '') config.system.preSwitchChecks
          );
        }
      );
      defaultText = "the generated script";
      description = "The checks in one script.";
    };
  };
}
