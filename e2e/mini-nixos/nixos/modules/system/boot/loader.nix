# The boot loader writes the boot default, the system's store path, to /boot/nixbench-default.
# The guest's image activates this system at boot, and tests read the file.
{ config, lib, pkgs, ... }:
let
  inherit (lib) types;
  inherit (import ../../../lib/option.nix { inherit lib; }) option required;
in
{
  options = {
    boot.loader = {
      timeout = option (types.nullOr types.int) 5 "Seconds until the default boots.";
      efi = {
        canTouchEfiVariables =
          option types.bool false
            "Whether installing may change the firmware's variables.";
        efiSysMountPoint = option types.str "/boot" "Where the EFI partition is mounted.";
      };
      grub = {
        enable =
          option types.bool (!config.boot.isContainer) "Whether to use GRUB.";
        device = option types.str "" "Device that GRUB is installed on.";
        devices = option (types.listOf types.str) [ ] "Devices that GRUB is installed on.";
        configurationLimit = option types.int 100 "How many generations GRUB lists.";
      };
      systemd-boot = {
        enable = option types.bool false "Whether to use systemd-boot.";
        configurationLimit = option (types.nullOr types.int) null "How many generations systemd-boot lists.";
      };
    };

    system.build.installBootLoader = required types.path "Program that makes a system the boot default.";
    system.boot.loader = {
      id = option types.str "nixbench" "The boot loader's name.";
      kernelFile = option types.str "bzImage" "The kernel's file in its package.";
      initrdFile = option types.str "initrd" "The initrd's file in its package.";
    };
  };

  config.boot.loader.grub.enable = lib.mkIf config.boot.loader.systemd-boot.enable (lib.mkDefault false);

  config.system.build.installBootLoader = lib.mkDefault (
    pkgs.writeShellScript "install-boot-loader" ''
      set -e
      PATH=/usr/sbin:/usr/bin:/sbin:/bin
      [ -d /boot ] || mkdir -p /boot
      printf '%s\n' "$1" >/boot/.nixbench-default.new
      mv -f /boot/.nixbench-default.new /boot/nixbench-default
      if [ "''${NIXOS_INSTALL_BOOTLOADER:-}" = 1 ]; then
        : >/boot/nixbench-loader-installed
      fi
    ''
  );
}
