# The guest mounts what its image says. The table is kept for those who read it:
# /etc/fstab.nixos, never /etc/fstab, whose devices the guest may not have.
{ config, lib, ... }:
let
  inherit (lib) mkOption types;

  fileSystem =
    { name, config, ... }:
    {
      options = {
        mountPoint = mkOption {
          type = types.addCheck types.str (s: builtins.match "[ \t\n]*" s == null);
          default = name;
          example = "/mnt/usb";
          description = "Where to mount it.";
        };
        device = mkOption {
          type = types.nullOr types.nonEmptyStr;
          default = null;
          example = "/dev/sda";
          description = "What to mount.";
        };
        label = mkOption {
          type = types.nullOr types.nonEmptyStr;
          default = null;
          example = "root-partition";
          description = "Label of what to mount.";
        };
        fsType = mkOption {
          type = types.nonEmptyStr;
          default = "auto";
          example = "ext4";
          description = "Type of the file system.";
        };
        options = mkOption {
          type = types.nonEmptyListOf types.nonEmptyStr;
          default = [ "defaults" ];
          example = [ "data=journal" ];
          description = "Mount options.";
        };
        neededForBoot = mkOption {
          type = types.bool;
          default = false;
          description = "Whether stage 1 mounts it.";
        };
        autoResize = mkOption {
          type = types.bool;
          default = false;
          description = "Whether it grows with its device.";
        };
        autoFormat = mkOption {
          type = types.bool;
          default = false;
          description = "Whether it is made when it is missing.";
        };
        noCheck = mkOption {
          type = types.bool;
          default = false;
          description = "Whether fsck leaves it alone.";
        };
        depends = mkOption {
          type = types.listOf types.str;
          default = [ ];
          description = "Mount points that come first.";
        };
      };
      config.device = lib.mkIf (config.label != null) (
        lib.mkDefault "/dev/disk/by-label/${config.label}"
      );
    };
in
{
  options = {
    fileSystems = mkOption {
      type = types.attrsOf (types.submodule fileSystem);
      default = { };
      example = lib.literalExpression ''{ "/".device = "/dev/hda1"; }'';
      description = "File systems to mount.";
    };
    swapDevices = mkOption {
      type = types.listOf (
        types.submodule {
          options = {
            device = mkOption {
              type = types.nonEmptyStr;
              example = "/dev/sda3";
              description = "Path of the device or file.";
            };
            size = mkOption {
              type = types.nullOr types.int;
              default = null;
              description = "Size of a swap file in MiB.";
            };
            priority = mkOption {
              type = types.nullOr types.int;
              default = null;
              description = "Priority of the device.";
            };
          };
        }
      );
      default = [ ];
      description = "Swap.";
    };
    zramSwap.enable = mkOption {
      type = types.bool;
      default = false;
      description = "Whether to swap into compressed memory; not set up here.";
    };
  };

  config.environment.etc."fstab.nixos".text =
    lib.concatMapStrings (
      f: "${if f.device == null then "none" else f.device} ${f.mountPoint} ${f.fsType} ${lib.concatStringsSep "," f.options} 0 0\n"
    ) (lib.attrValues config.fileSystems)
    + lib.concatMapStrings (s: "${s.device} none swap defaults 0 0\n") config.swapDevices;
}
