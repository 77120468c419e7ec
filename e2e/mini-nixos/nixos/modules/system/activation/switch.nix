# bin/switch-to-configuration, and the checks that it runs before it changes anything.
{ config, lib, pkgs, ... }:
let
  inherit (lib) mkOption types;
  inherit (import ../../../lib/option.nix { inherit lib; }) option;
  cfg = config.system;

  # As in NixOS: in a shell of its own, which ends at the first command that fails, and with all
  # output on stderr. The shell must not be part of a condition, in which bash ignores `set -e`.
  ask = name: question: ''
    set +e
    (
      set -e
      ${question}
    ) >&2
    answer=$?
    set -e
    [ "$answer" = 0 ] || refuse ${lib.escapeShellArg name}
  '';
  checks = pkgs.writeShellApplication {
    name = "pre-switch-checks";
    text = ''
      refuse() {
        printf "Pre-switch check '%s' failed\n" "$1" >&2
        exit 1
      }
      ${lib.concatStrings (lib.mapAttrsToList ask cfg.preSwitchChecks)}
    '';
  };
in
{
  options.system = {
    switch.enable = option types.bool true "Whether the system can be switched to while another runs.";
    preSwitchChecks =
      option (types.attrsOf types.str) { }
        "Shell commands with the new system's path as $1 and the action as $2.";
    preSwitchChecksScript = mkOption {
      type = types.pathInStore;
      readOnly = true;
      default = lib.getExe checks;
      description = "The checks in one script.";
    };
  };

  config.system.systemBuilderCommands = lib.mkIf cfg.switch.enable ''
    sed -e "s|@out@|$out|g" \
      -e "s|@shell@|${pkgs.runtimeShell}|g" \
      -e "s|@distroId@|${cfg.nixos.distroId}|g" \
      -e "s|@installBootLoader@|${cfg.build.installBootLoader}|g" \
      ${./switch-to-configuration.sh} > "$out/bin/switch-to-configuration"
    chmod +x "$out/bin/switch-to-configuration"
  '';
}
