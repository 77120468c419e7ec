{ config, lib, ... }:
let
  inherit (lib) mkOption types;
  cfg = config.services.resolved;
in
{
  options.services.resolved = {
    enable = mkOption {
      type = types.bool;
      default = false;
      description = "Whether systemd-resolved answers names.";
    };
    fallbackDns = mkOption {
      type = types.nullOr (types.listOf types.str);
      default = null;
      description = "Servers to fall back to.";
    };
    domains = mkOption {
      type = types.listOf types.str;
      default = config.networking.search;
      defaultText = lib.literalExpression "config.networking.search";
      description = "Domains to search.";
    };
    extraConfig = mkOption {
      type = types.lines;
      default = "";
      description = "Lines at the end of resolved's configuration.";
    };
  };

  config = lib.mkIf cfg.enable {
    environment.etc."systemd/resolved.conf.d/50-nixos.conf".text =
      "[Resolve]\n"
      + lib.optionalString (config.networking.nameservers != [ ]) "DNS=${lib.concatStringsSep " " config.networking.nameservers}\n"
      + lib.optionalString (cfg.fallbackDns != null) "FallbackDNS=${lib.concatStringsSep " " cfg.fallbackDns}\n"
      + lib.optionalString (cfg.domains != [ ]) "Domains=${lib.concatStringsSep " " cfg.domains}\n"
      + cfg.extraConfig;
    environment.etc."resolv.conf" = {
      source = "/run/systemd/resolve/stub-resolv.conf";
      mode = "direct-symlink";
    };
    systemd.services.systemd-resolved = {
      wantedBy = [ "multi-user.target" ];
      restartTriggers = [ config.environment.etc."systemd/resolved.conf.d/50-nixos.conf".source ];
    };
  };
}
