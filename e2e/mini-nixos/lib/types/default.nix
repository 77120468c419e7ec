# Option types: what a definition may be, and how several become one value.
{ lib }:
let
  kit = import ./kit.nix { inherit lib; };
  part = file: import file { inherit kit lib; };
in
{ inherit (kit) addCheck defaultFunctor isOptionType isType mkOptionType setType; }
// part ./values.nix
// part ./containers.nix
// part ./submodules.nix
