# system.build.images: what `nixos-rebuild build-image` builds. An image here is a
# tarball that describes the system; a test gives the guest a disk of its own.
{
  config,
  extendModules,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib) mkOption types;

  extensions = {
    lxc = "tar.xz";
    qemu = "qcow2";
    raw = "raw";
  };
in
{
  options = {
    image = {
      baseName = mkOption {
        type = types.str;
        default = "nixos-image-${config.system.nixos.label}-${pkgs.stdenv.hostPlatform.system}";
        defaultText = "the label and the system";
        description = "Name of the image file without its extension.";
      };
      extension = mkOption {
        type = types.str;
        default = "img";
        description = "Extension of the image file.";
      };
      fileName = mkOption {
        type = types.str;
        default = "${config.image.baseName}.${config.image.extension}";
        defaultText = "the name with its extension";
        description = "Name of the image file.";
      };
      filePath = mkOption {
        type = types.str;
        default = config.image.fileName;
        defaultText = lib.literalExpression "config.image.fileName";
        description = "Path of the image file in the build's output.";
      };
      modules = mkOption {
        type = types.attrsOf types.deferredModule;
        default = { };
        description = "What is different in each kind of image.";
      };
    };

    virtualisation.diskSize = mkOption {
      type = types.either (types.enum [ "auto" ]) types.ints.positive;
      default = "auto";
      description = "Size of the image's disk in MiB.";
    };

    system.build.image = mkOption {
      type = types.package;
      internal = true;
      description = "The image of this system.";
    };
  };

  config = {
    image.modules = lib.mapAttrs (_: extension: { image = { inherit extension; }; }) extensions;

    system.build = {
      image =
        pkgs.runCommand "nixos-image"
          {
            passthru = {
              inherit (config.image) filePath;
              inherit config;
            };
          }
          ''
            mkdir "$out" description
            echo ${config.system.build.toplevel} > description/system
            ln -s ${config.system.build.toplevel}/init description/init
            tar -cf "$out/"${lib.escapeShellArg config.image.filePath} description
          '';

      images = lib.mapAttrs (
        _: module: (extendModules { modules = [ module ]; }).config.system.build.image
      ) config.image.modules;
    };
  };
}
