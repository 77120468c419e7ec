# Settings of the machines that nixbench creates and boots. They give a machine its identity at the first boot, and let nixbench
# log in to the machine, deploy to it, and read its console log. This module is in the image (./image.nix), and in every system
# that nixbench deploys to the machine later.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib) mkDefault mkIf mkOption types;
  cfg = config.nixbench.guest;
  virtual = !config.boot.isContainer;
  uefi = cfg.firmware == "uefi";
in
{
  imports = [
    ./handover
    ./image.nix
    ./runtime.nix
  ];

  # interface
  options.nixbench.guest = {
    firmware = mkOption {
      type = types.enum [
        "bios"
        "uefi"
      ];
      default = if pkgs.stdenv.hostPlatform.isx86 then "bios" else "uefi";
      defaultText = lib.literalMD "`\"bios\"` on x86, otherwise `\"uefi\"`";
      example = "uefi";
      description = "Firmware of the machine. It must be the same as `roles.ROLE.firmware`; containers have none.";
    };
    consoles = mkOption {
      type = types.listOf types.str;
      default = [
        "tty0"
        (if pkgs.stdenv.hostPlatform.isx86 then "ttyS0,115200" else "ttyAMA0")
      ];
      defaultText = lib.literalMD "the screen, and the serial console of the platform";
      example = [ "ttyS0,115200" ];
      description = "Consoles of the kernel in a virtual machine. The init process writes to the last one.";
    };
  };

  # implementation
  config = lib.mkMerge [
    {
      # Root can log in with the cluster's SSH key, which the machine gets at its first boot.
      # No user can log in with a password.
      services.openssh = {
        enable = true;
        authorizedKeysInHomedir = true;
        # Only one host key, which nixbench creates before the first boot. Without this setting, host keys of other types would be
        # generated at the first boot. No client would have them in known_hosts, and the generation of an RSA key takes seconds.
        hostKeys = mkDefault [
          {
            type = "ed25519";
            path = "/etc/ssh/ssh_host_ed25519_key";
          }
        ];
        settings = {
          PermitRootLogin = mkDefault "prohibit-password";
          PasswordAuthentication = mkDefault false;
          KbdInteractiveAuthentication = mkDefault false;
        };
      };

      # nixbench deploys as root, whom Nix always trusts, so trusted-users is not set. The features are in
      # `extra-experimental-features`, because a hive may set `experimental-features` to a string or to a list, and Nix options
      # cannot merge a string and a list.
      nix.settings.extra-experimental-features = mkDefault [
        "nix-command"
        "flakes"
      ];

      # The DHCP server reserves an address for the MAC address of the machine. By default, networkd sends an identifier that
      # depends on the machine-id, which changes when the machine is recreated; so ClientIdentifier is set. The interface
      # names match those of the machine, but not bridges and interfaces of pods.
      #
      # networkd uses the first file, by name, that matches an interface. systemd recommends
      # names below 70 to users, and NixOS writes 40-INTERFACE for `networking.interfaces`, so
      # those files override this one. This file overrides the defaults for all interfaces: those
      # of systemd are 80 to 89, and NixOS writes 99-ethernet-default-dhcp for
      # `networking.useDHCP`, with which the machine would get another address.
      networking = {
        useNetworkd = mkDefault true;
        useDHCP = mkDefault false;
      };
      systemd.network.networks."70-nixbench" = {
        matchConfig.Name = "en* eth*";
        networkConfig.DHCP = "ipv4";
        dhcpV4Config.ClientIdentifier = "mac";
      };
      systemd.network.wait-online.anyInterface = mkDefault true;

      documentation.enable = mkDefault false;
    }

    (mkIf virtual {
      services.qemuGuest.enable = mkDefault true;
      boot = {
        kernelParams = map (c: "console=${c}") cfg.consoles;
        initrd.availableKernelModules = [
          "virtio_blk"
          "virtio_net"
          "virtio_pci"
          "virtio_scsi"
        ];
        # systemd needs these two modules at its start, to read the credentials of the machine.
        initrd.kernelModules = [
          "dmi_sysfs"
          "qemu_fw_cfg"
        ];
        # The image is as small as possible. At the first boot, the root partition grows to the
        # size of `roles.ROLE.disk`.
        growPartition = mkDefault true;
        loader = {
          timeout = mkDefault 1;
          # The priority 1400 is between an option's default (1500) and mkDefault (1000), because modules of other boot loaders
          # disable GRUB with mkDefault.
          grub.enable = lib.mkOverride 1400 (!uefi);
          grub.device = mkIf (!uefi) (mkDefault "/dev/vda");
          systemd-boot.enable = mkDefault uefi;
        };
      };
      fileSystems = {
        # The root file system is found by the label that NixOS' images give it.
        "/" = {
          device = mkDefault "/dev/disk/by-label/nixos";
          fsType = mkDefault "ext4";
          autoResize = mkDefault true;
        };
        "/boot" = mkIf uefi {
          device = mkDefault "/dev/disk/by-label/ESP";
          fsType = mkDefault "vfat";
        };
      };
    })

    (mkIf (!virtual) {
      # The name servers of the hypervisor do not resolve the names of the cluster's nodes.
      networking.useHostResolvConf = false;
      services.openssh.startWhenNeeded = false;
      # libvirt mounts `/` as private. systemd needs a shared mount; otherwise the credentials
      # that services import are empty.
      boot.postBootCommands = lib.mkBefore ''
        ${pkgs.util-linux}/bin/mount --make-rshared /
      '';
    })
  ];
}
