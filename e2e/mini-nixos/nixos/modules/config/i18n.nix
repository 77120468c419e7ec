{ config, lib, ... }:
let
  inherit (lib) mkOption types;
in
{
  options = {
    i18n.defaultLocale = mkOption {
      type = types.str;
      default = "en_US.UTF-8";
      example = "nl_NL.UTF-8";
      description = "The locale of the system.";
    };
    i18n.supportedLocales = mkOption {
      type = types.listOf types.str;
      default = [ "all" ];
      example = [ "en_US.UTF-8/UTF-8" ];
      description = "Locales to generate; the guest has its own.";
    };
    time.timeZone = mkOption {
      type = types.nullOr (types.strMatching "[^ ]*");
      default = null;
      example = "America/New_York";
      description = "The time zone; null leaves it to the administrator.";
    };
    console.keyMap = mkOption {
      type = types.either types.str types.path;
      default = "us";
      example = "fr";
      description = "The keyboard map of the console; nothing loads it here.";
    };
  };

  config.environment.etc = {
    "locale.conf".text = "LANG=${config.i18n.defaultLocale}\n";
  }
  // lib.optionalAttrs (config.time.timeZone != null) {
    localtime = {
      source = "/usr/share/zoneinfo/${config.time.timeZone}";
      mode = "direct-symlink";
    };
  };
}
