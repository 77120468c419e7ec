# What a module may say about itself; nothing here reaches the system.
{ lib, ... }:
let
  inherit (lib) mkOption types;
in
{
  options.meta = {
    maintainers = mkOption {
      type = types.listOf types.unspecified;
      internal = true;
      default = [ ];
      description = "Who looks after the module.";
    };
    doc = mkOption {
      type = types.nullOr types.path;
      internal = true;
      default = null;
      description = "The module's chapter of the manual.";
    };
    buildDocsInSandbox = mkOption {
      type = types.bool;
      internal = true;
      default = true;
      description = "Whether the options can be documented inside a sandbox.";
    };
  };
}
