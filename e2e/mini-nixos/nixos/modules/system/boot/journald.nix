{ config, lib, ... }:
let
  inherit (lib) mkOption types;
  cfg = config.services.journald;
in
{
  options.services.journald = {
    storage = mkOption {
      type = types.enum [
        "persistent"
        "volatile"
        "auto"
        "none"
      ];
      default = "persistent";
      description = "Where the journal is kept.";
    };
    extraConfig = mkOption {
      type = types.lines;
      default = "";
      example = "SystemMaxUse=100M";
      description = "Lines at the end of journald's configuration.";
    };
  };

  config.environment.etc."systemd/journald.conf.d/50-nixos.conf".text = ''
    [Journal]
    Storage=${cfg.storage}
  ''
  + cfg.extraConfig;
}
