# Options that every module may use: assertions, warnings, metadata, shared functions.
{ lib, ... }:
let
  inherit (lib) types;
  inherit (import ../../lib/option.nix { inherit lib; }) option;
in
{
  options = {
    assertions =
      option (types.listOf types.unspecified) [ ]
        "What must be true of a configuration, each with a message for when it is not.";
    warnings = option (types.listOf types.str) [ ] "What to say when the system is evaluated.";
    # Nothing of this reaches the system.
    meta = {
      maintainers = option (types.listOf types.unspecified) [ ] "Who looks after the module.";
      doc = option (types.nullOr types.path) null "The module's chapter of the manual.";
    };
  };
  config._module.args.utils = import ../../lib/utils.nix { inherit lib; };
}
