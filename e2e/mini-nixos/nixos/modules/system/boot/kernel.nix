# Kernel, its parameters and its modules.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib) mkOption types;
  cfg = config.boot;
in
{
  options = {
    boot.isContainer = mkOption {
      type = types.bool;
      default = false;
      description = "Whether this runs in a container, without a kernel of its own.";
    };
    boot.kernelPackages = mkOption {
      type = types.raw;
      default = pkgs.linuxPackages;
      defaultText = lib.literalExpression "pkgs.linuxPackages";
      example = lib.literalExpression "pkgs.linuxPackages_latest";
      description = "Kernel and the packages built for it.";
    };
    boot.kernelParams = mkOption {
      type = types.listOf (types.strMatching ''([^"[:space:]]|"[^"]*")+'');
      default = [ ];
      example = [ "console=ttyS0" ];
      description = "Parameters of the kernel's command line.";
    };
    boot.consoleLogLevel = mkOption {
      type = types.int;
      default = 4;
      description = "Which messages the kernel prints.";
    };
    boot.kernelModules = mkOption {
      type = types.listOf types.str;
      default = [ ];
      example = [ "br_netfilter" ];
      description = "Modules to load at boot.";
    };
    boot.blacklistedKernelModules = mkOption {
      type = types.listOf types.str;
      default = [ ];
      description = "Modules never to load by themselves.";
    };
    boot.extraModulePackages = mkOption {
      type = types.listOf types.package;
      default = [ ];
      description = "Packages with more modules.";
    };
    boot.extraModprobeConfig = mkOption {
      type = types.lines;
      default = "";
      description = "Lines of modprobe's configuration.";
    };
    hardware.enableRedistributableFirmware = mkOption {
      type = types.bool;
      default = false;
      description = "Whether to install firmware; there is none here.";
    };
    system.modulesTree = mkOption {
      type = types.listOf types.path;
      internal = true;
      default = [ ];
      description = "Trees of kernel modules.";
    };
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
