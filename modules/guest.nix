# A machine that nixbench boots: what it needs so that it can be told at its first boot
# who it is, and so that we can log in, deploy to it and see its console. The same
# module makes the image (./image.nix) and stays in every system that follows.
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
      defaultText = lib.literalMD "`\"bios\"`, and `\"uefi\"` where there is no BIOS";
      example = "uefi";
      description = "What the machine starts with, as `roles.ROLE.firmware` says; containers have none.";
    };
    consoles = mkOption {
      type = types.listOf types.str;
      default = [
        "tty0"
        (if pkgs.stdenv.hostPlatform.isx86 then "ttyS0,115200" else "ttyAMA0")
      ];
      defaultText = lib.literalMD "the screen, and the serial console of the platform";
      example = [ "ttyS0,115200" ];
      description = ''
        The kernel's consoles in a virtual machine; the last one is where its init writes. The end
        of the serial console is shown when a machine does not come up.
      '';
    };
  };

  # implementation
  config = lib.mkMerge [
    {
      # Logins: root, by the key that the machine is given at its first boot. A password
      # opens nothing.
      services.openssh = {
        enable = true;
        authorizedKeysInHomedir = true;
        # The one that nixbench makes before the boot. Others would be made at the boot,
        # known to nobody, and an RSA key takes seconds.
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

      # Root, as whom we deploy, is a trusted user of Nix anyway.
      nix.settings.experimental-features = [
        "nix-command"
        "flakes"
      ];

      # An address is reserved by MAC. Without the second line networkd would name
      # itself by the machine-id, which is drawn anew with each machine. The names are
      # those of real interfaces, not of what pods and bridges bring later.
      networking = {
        useNetworkd = mkDefault true;
        useDHCP = mkDefault false;
      };
      systemd.network.networks."10-nixbench" = {
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
        # systemd reads credentials through these two, as its very first step.
        initrd.kernelModules = [
          "dmi_sysfs"
          "qemu_fw_cfg"
        ];
        # The disk is as large as the role says, the image as small as it can be.
        growPartition = mkDefault true;
        loader = {
          timeout = mkDefault 1;
          grub.enable = mkDefault (!uefi);
          grub.device = mkIf (!uefi) (mkDefault "/dev/vda");
          systemd-boot.enable = mkDefault uefi;
        };
      };
      fileSystems = {
        # The labels that NixOS' images have.
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
      # The hypervisor's name servers are not the cluster's.
      networking.useHostResolvConf = false;
      services.openssh.startWhenNeeded = false;
      # libvirt leaves `/` private. systemd expects it shared, as container managers have
      # it; else the credentials that services import stay empty.
      boot.postBootCommands = lib.mkBefore ''
        ${pkgs.util-linux}/bin/mount --make-rshared /
      '';
    })
  ];
}
