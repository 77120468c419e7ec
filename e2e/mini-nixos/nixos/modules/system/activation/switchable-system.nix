# bin/switch-to-configuration.
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
  options.system = {
    switch.enable = mkOption {
      type = types.bool;
      default = true;
      description = "Whether the system can be switched to while another runs.";
    };
  };

  config.system.systemBuilderCommands = lib.mkIf config.system.switch.enable ''
    sed -e "s|@out@|$out|g" \
      -e "s|@shell@|${pkgs.runtimeShell}|g" \
      -e "s|@distroId@|${config.system.nixos.distroId}|g" \
      -e "s|@installBootLoader@|${config.system.build.installBootLoader}|g" \
      ${./switch-to-configuration.sh} > "$out/bin/switch-to-configuration"
    chmod +x "$out/bin/switch-to-configuration"
  '';
}
