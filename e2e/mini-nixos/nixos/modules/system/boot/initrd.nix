# What a hive says about stage 1. The guest boots its own image, so these only
# change the placeholder initrd, and with it whether a reboot is due.
{ lib, ... }:
let
  inherit (lib) mkOption types;
  names =
    description:
    mkOption {
      type = types.listOf types.str;
      default = [ ];
      inherit description;
    };
in
{
  options.boot = {
    initrd = {
      enable = mkOption {
        type = types.bool;
        default = true;
        description = "Whether there is an initrd.";
      };
      availableKernelModules = names "Modules that the initrd can load.";
      kernelModules = names "Modules that the initrd loads.";
      supportedFilesystems = names "File systems that the initrd can mount.";
      systemd.enable = mkOption {
        type = types.bool;
        default = false;
        description = "Whether systemd runs stage 1.";
      };
    };
    supportedFilesystems = names "File systems that the system can mount.";
    growPartition = mkOption {
      type = types.bool;
      default = false;
      description = "Whether the root partition grows at boot; the guest's image decides.";
    };
    postBootCommands = mkOption {
      type = types.lines;
      default = "";
      description = "Shell commands just before systemd starts; kept, not run.";
    };
    tmp = {
      useTmpfs = mkOption {
        type = types.bool;
        default = false;
        description = "Whether /tmp is in memory.";
      };
      cleanOnBoot = mkOption {
        type = types.bool;
        default = false;
        description = "Whether /tmp is emptied at boot.";
      };
    };
  };
}
