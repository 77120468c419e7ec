# Evaluates NixOS modules of nixpkgs with packages that are links to the programs of a Debian guest.
{
  # The root folder of nixpkgs.
  nixpkgs,
  # The root folder of the Debian guest.
  guest,
  # A program `switch-to-configuration` of this nixpkgs.
  switch,
  overlays ? [ ],
  config ? { },
  system ? "x86_64-linux",
  ...
}:
import (nixpkgs + "/pkgs/top-level") {
  localSystem = { inherit system; };
  inherit config;
  overlays = [ (import ./overlay.nix { inherit guest nixpkgs switch; }) ] ++ overlays;
  stdenvStages = args: import ./stages.nix (removeAttrs args [ "crossOverlays" ] // { inherit nixpkgs; });
}
