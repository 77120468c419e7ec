# system.build.images: what `nixos-rebuild build-image` builds. An image here is a
# tarball that describes the system; a test gives the guest a disk of its own.
{ config, extendModules, lib, pkgs, ... }:
let
  inherit (lib) types;
  inherit (import ../../lib/option.nix { inherit lib; }) option required;

  extensions = { lxc = "tar.xz"; qemu = "qcow2"; qemu-efi = "qcow2"; raw = "raw"; };
in
{
  imports = [ ./file-options.nix ];

  options = {
    image.modules = option (types.attrsOf types.deferredModule) { } "What is different in each kind of image.";

    virtualisation.diskSize =
      option (types.either (types.enum [ "auto" ]) types.ints.positive) "auto"
        "Size of the image's disk in MiB.";

    system.build.image = required types.package "The image of this system.";
  };

  config = {
    image.modules = lib.mapAttrs (_: extension: { image = { inherit extension; }; }) extensions;

    system.build = {
      image = lib.mkDefault (
        pkgs.runCommand "nixos-image"
          {
            passthru = { inherit (config.image) filePath; inherit config; };
          }
          ''
            mkdir "$out" description
            echo ${config.system.build.toplevel} > description/system
            ln -s ${config.system.build.toplevel}/init description/init
            tar -cf "$out/"${lib.escapeShellArg config.image.filePath} description
          ''
      );

      images = lib.mapAttrs (
        _: module: (extendModules { modules = [ module ]; }).config.system.build.image
      ) config.image.modules;
    };
  };
}
