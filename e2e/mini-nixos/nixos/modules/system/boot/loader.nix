# The boot loader. What a guest really boots is its image's business; the default
# is recorded in /boot/nixbench-default, one line with the system's store path,
# so that a test can tell what the next boot would be.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib) mkOption types;
in
{
  options = {
    boot.loader = {
      timeout = mkOption {
        type = types.nullOr types.int;
        default = 5;
        description = "Seconds until the default boots.";
      };
      efi = {
        canTouchEfiVariables = mkOption {
          type = types.bool;
          default = false;
          description = "Whether installing may change the firmware's variables.";
        };
        efiSysMountPoint = mkOption {
          type = types.str;
          default = "/boot";
          description = "Where the EFI partition is mounted.";
        };
      };
      grub = {
        enable = mkOption {
          type = types.bool;
          default = !config.boot.isContainer && !config.boot.loader.systemd-boot.enable;
          defaultText = lib.literalExpression "!config.boot.isContainer";
          description = "Whether to use GRUB.";
        };
        device = mkOption {
          type = types.str;
          default = "";
          example = "/dev/vda";
          description = "Device that GRUB is installed on.";
        };
        devices = mkOption {
          type = types.listOf types.str;
          default = [ ];
          description = "Devices that GRUB is installed on.";
        };
        efiSupport = mkOption {
          type = types.bool;
          default = false;
          description = "Whether GRUB boots by EFI.";
        };
        efiInstallAsRemovable = mkOption {
          type = types.bool;
          default = false;
          description = "Whether GRUB is installed where removable media have it.";
        };
        configurationLimit = mkOption {
          type = types.int;
          default = 100;
          description = "How many generations GRUB lists.";
        };
      };
      systemd-boot = {
        enable = mkOption {
          type = types.bool;
          default = false;
          description = "Whether to use systemd-boot.";
        };
        configurationLimit = mkOption {
          type = types.nullOr types.int;
          default = null;
          description = "How many generations systemd-boot lists.";
        };
      };
      generic-extlinux-compatible.enable = mkOption {
        type = types.bool;
        default = false;
        description = "Whether to write extlinux configuration.";
      };
    };

    system.build.installBootLoader = mkOption {
      type = types.path;
      internal = true;
      description = "Program that makes a system the boot default.";
    };
    system.boot.loader = {
      id = mkOption {
        type = types.str;
        internal = true;
        default = "nixbench";
        description = "The boot loader's name.";
      };
      kernelFile = mkOption {
        type = types.str;
        internal = true;
        default = "bzImage";
        description = "The kernel's file in its package.";
      };
      initrdFile = mkOption {
        type = types.str;
        internal = true;
        default = "initrd";
        description = "The initrd's file in its package.";
      };
    };
  };

  config.system.build.installBootLoader = lib.mkDefault (
    pkgs.writeShellScript "install-boot-loader" ''
      set -e
      PATH=/usr/sbin:/usr/bin:/sbin:/bin
      mkdir -p /boot
      printf '%s\n' "$1" >/boot/.nixbench-default.new
      mv -f /boot/.nixbench-default.new /boot/nixbench-default
      if [ "''${NIXOS_INSTALL_BOOTLOADER:-}" = 1 ]; then
        touch /boot/nixbench-loader-installed
      fi
    ''
  );
}
