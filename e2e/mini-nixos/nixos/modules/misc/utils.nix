# Modules may ask for `utils`, as in NixOS.
{ lib, ... }:
{
  _module.args.utils = import ../../lib/utils.nix { inherit lib; };
}
