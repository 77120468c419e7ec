# The name of an image's file.
{ config, lib, pkgs, ... }:
let
  inherit (lib) types;
  inherit (import ../../lib/option.nix { inherit lib; }) option;
in
{
  options.image = {
    baseName =
      option types.str "nixos-image-${config.system.nixos.label}-${pkgs.stdenv.hostPlatform.system}"
        "Name of the image file without its extension.";
    extension = option types.str "img" "Extension of the image file.";
    fileName =
      option types.str "${config.image.baseName}.${config.image.extension}"
        "Name of the image file.";
    filePath = option types.str config.image.fileName "Path of the image file in the build's output.";
  };
}
