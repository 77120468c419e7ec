# Kernel, its parameters and its modules.
{ config, lib, pkgs, ... }:
let
  inherit (lib) types;
  inherit (import ../../../lib/option.nix { inherit lib; }) option;
  cfg = config.boot;
in
{
  options = {
    boot.isContainer = option types.bool false "Whether this runs in a container, without a kernel of its own.";
    boot.kernelPackages = option types.raw pkgs.linuxPackages "Kernel and the packages built for it.";
    boot.kernelParams =
      option (types.listOf (types.strMatching ''([^"[:space:]]|"[^"]*")+'')) [ ]
        "Parameters of the kernel's command line.";
    boot.consoleLogLevel = option types.int 4 "Which messages the kernel prints.";
    boot.kernelModules = option (types.listOf types.str) [ ] "Modules to load at boot.";
    boot.blacklistedKernelModules = option (types.listOf types.str) [ ] "Modules never to load by themselves.";
    boot.extraModulePackages = option (types.listOf types.package) [ ] "Packages with more modules.";
    boot.extraModprobeConfig = option types.lines "" "Lines of modprobe's configuration.";
    system.modulesTree = option (types.listOf types.path) [ ] "Trees of kernel modules.";
  };

  config = {
    boot.kernelParams = [ "loglevel=${toString cfg.consoleLogLevel}" ];
    system.modulesTree = lib.mkIf (!cfg.isContainer) (
      [ cfg.kernelPackages.kernel ] ++ cfg.extraModulePackages
    );

    environment.etc = {
      "modules-load.d/nixos.conf".text = lib.concatMapStrings (m: m + "\n") (
        lib.unique cfg.kernelModules
      );
      "modprobe.d/nixos.conf".text =
        lib.concatMapStrings (m: "blacklist ${m}\n") cfg.blacklistedKernelModules
        + cfg.extraModprobeConfig;
    };

    systemd.services.systemd-modules-load = lib.mkIf (!cfg.isContainer) {
      restartTriggers = [ config.environment.etc."modules-load.d/nixos.conf".source ];
      # A module that the guest's kernel has built in cannot be loaded, and need not be.
      serviceConfig.SuccessExitStatus = "0 1";
    };
  };
}
