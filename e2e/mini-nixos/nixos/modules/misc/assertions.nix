{ lib, ... }:
let
  inherit (lib) mkOption types;
in
{
  options = {
    assertions = mkOption {
      type = types.listOf types.unspecified;
      internal = true;
      default = [ ];
      example = [
        {
          assertion = false;
          message = "you can't enable this for that reason";
        }
      ];
      description = "Conditions that must hold for the evaluation of the system to succeed.";
    };

    warnings = mkOption {
      type = types.listOf types.str;
      internal = true;
      default = [ ];
      example = [ "The `foo' service is deprecated and will go away soon!" ];
      description = "Messages printed when the system is evaluated.";
    };
  };
}
