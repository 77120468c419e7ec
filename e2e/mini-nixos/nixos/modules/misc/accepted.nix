# Options that are accepted without an effect on the guest: it boots its own image, has Debian's
# documentation, and uses the hypervisor's clock.
{ config, lib, ... }:
let
  inherit (lib) types;
  inherit (import ../../lib/option.nix { inherit lib; }) option;
  switch = option types.bool;
  names = option (types.listOf types.str) [ ];
  documented = what: switch true "Whether to install ${what}.";
in
{
  options = {
    boot = {
      # These show in the placeholder initrd, and so ask for a reboot.
      initrd = {
        enable = switch true "Whether there is an initrd.";
        availableKernelModules = names "Modules that the initrd can load.";
        kernelModules = names "Modules that the initrd loads.";
        supportedFilesystems = names "File systems that the initrd can mount.";
        systemd.enable = switch false "Whether systemd runs stage 1.";
      };
      supportedFilesystems = names "File systems that the system can mount.";
      growPartition = switch false "Whether the root partition grows at boot.";
      postBootCommands = option types.lines "" "Shell commands just before systemd starts.";
      tmp.useTmpfs = switch false "Whether /tmp is in memory.";
      tmp.cleanOnBoot = switch false "Whether /tmp is emptied at boot.";
    };
    documentation = {
      enable = documented "documentation";
      man.enable = documented "manual pages";
      info.enable = documented "info pages";
      doc.enable = documented "documentation in share/doc";
      nixos.enable = documented "documentation of NixOS";
    };
    hardware.enableRedistributableFirmware = switch false "Whether to install firmware.";
    services.timesyncd = {
      enable = switch (!config.boot.isContainer) "Whether systemd-timesyncd keeps the clock.";
      servers =
        option (types.nullOr (types.listOf types.str)) config.networking.timeServers
          "Where it asks for the time.";
    };
    zramSwap.enable = switch false "Whether to swap into compressed memory.";
  };
}
