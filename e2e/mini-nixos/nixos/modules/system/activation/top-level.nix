# The system's closure: one store path with everything a node runs.
{ config, lib, pkgs, ... }:
let
  inherit (lib) mkOption types;
  inherit (import ../../../lib/option.nix { inherit lib; }) option required;
  cfg = config.system;
  bootCfg = config.boot;

  build = pkgs.runCommand "nixos-system-${cfg.name}-${cfg.nixos.label}" {
    activationScript = cfg.build.activationScript;
    dryActivationScript = cfg.dryActivationScript;
    systemBuilderCommands = cfg.systemBuilderCommands;
    extraDependencies = lib.concatMapStringsSep " " toString cfg.extraDependencies;
    kernelParams = toString bootCfg.kernelParams;
    passAsFile = [
      "activationScript"
      "dryActivationScript"
      "extraDependencies"
      "systemBuilderCommands"
    ];
  } ''
    mkdir -p "$out/bin"
    ln -s ${cfg.build.etc}/etc "$out/etc"
    ln -s ${cfg.path} "$out/sw"
    ln -s ${config.systemd.package} "$out/systemd"
    echo -n "systemd ${toString cfg.initInterfaceVersion}" > "$out/init-interface-version"
    echo -n ${lib.escapeShellArg cfg.nixos.label} > "$out/nixos-version"
    echo -n ${pkgs.stdenv.hostPlatform.system} > "$out/system"
    ${lib.optionalString (cfg.configurationRevision != null) ''
      echo -n ${lib.escapeShellArg cfg.configurationRevision} > "$out/configuration-revision"
    ''}
    ${lib.optionalString (!bootCfg.isContainer) ''
      ln -s ${bootCfg.kernelPackages.kernel}/${cfg.boot.loader.kernelFile} "$out/kernel"
      ln -s ${bootCfg.kernelPackages.kernel} "$out/kernel-modules"
      ln -s ${cfg.build.initialRamdisk}/${cfg.boot.loader.initrdFile} "$out/initrd"
      echo -n "$kernelParams" > "$out/kernel-params"
    ''}

    for script in activate dry-activate; do
      from=$activationScriptPath
      [ "$script" = activate ] || from=$dryActivationScriptPath
      sed "s|@out@|$out|g" "$from" > "$out/$script"
      chmod +x "$out/$script"
    done
    cp ${cfg.build.bootStage2} "$out/init"
    sed -i "s|@out@|$out|g" "$out/init"
    ln -s ${cfg.preSwitchChecksScript} "$out/pre-switch-checks"
    cp "$extraDependenciesPath" "$out/extra-dependencies"
    . "$systemBuilderCommandsPath"
  '';

  failed = map (a: a.message) (lib.filter (a: !a.assertion) config.assertions);
in
{
  options.system = {
    name =
      option types.str (if config.networking.hostName == "" then "unnamed" else config.networking.hostName)
        "What the system is called in its store path.";
    extraDependencies =
      option (types.listOf types.pathInStore) [ ]
        "Paths that are part of the closure though nothing uses them.";
    systemBuilderCommands = option types.lines "" "Shell commands that add to the system.";
    initInterfaceVersion =
      option types.int 2
        "Systems with different numbers cannot be switched between; a test's way to ask for a reboot.";
    build = option (types.submodule {
        freeformType = types.lazyAttrsOf types.unspecified;
        options = {
          toplevel = mkOption {
            type = types.package;
            readOnly = true;
            description = "The closure.";
          };
          initialRamdisk = required types.package "The initrd; a list of what would be in it.";
          bootStage2 = required types.package "The program a machine starts with.";
        };
      }) { } "What a system is built into.";
  };

  config.system.build = {
    initialRamdisk = pkgs.runCommand "initrd" {
      modules = bootCfg.initrd.availableKernelModules ++ bootCfg.initrd.kernelModules;
      inherit (bootCfg.kernelPackages.kernel) version;
    } ''
      mkdir "$out"
      printf '%s\n' "placeholder for the initrd of $version" $modules > "$out/${cfg.boot.loader.initrdFile}"
    '';

    # For machines that boot a system without activating it first.
    bootStage2 = pkgs.writeShellScript "stage-2-init" ''
      @out@/activate
      ln -sfn @out@ /run/booted-system
      exec /lib/systemd/systemd "$@"
    '';

    toplevel =
      if failed != [ ] then
        throw "\nFailed assertions:\n${lib.concatMapStringsSep "\n" (m: "- ${m}") failed}"
      else
        lib.showWarnings config.warnings build;
  };
}
