# Switches that hives turn off to save space. There is no documentation here.
{ lib, ... }:
let
  inherit (lib) mkOption types;
  switch =
    what:
    mkOption {
      type = types.bool;
      default = true;
      example = false;
      description = "Whether to install ${what}.";
    };
in
{
  options.documentation = {
    enable = switch "documentation";
    man.enable = switch "manual pages";
    info.enable = switch "info pages";
    doc.enable = switch "documentation in share/doc";
    dev.enable = switch "documentation for developers";
    nixos.enable = switch "NixOS' own documentation";
  };
}
