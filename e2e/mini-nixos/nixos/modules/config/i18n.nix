{ config, lib, ... }:
let
  inherit (lib) types;
  inherit (import ../../lib/option.nix { inherit lib; }) option;
in
{
  options = {
    i18n.defaultLocale = option types.str "en_US.UTF-8" "The locale of the system.";
    i18n.supportedLocales =
      option (types.listOf types.str) [ "all" ]
        "Locales to generate; the guest has its own.";
    time.timeZone =
      option (types.nullOr (types.strMatching "[^ ]*")) null
        "The time zone; null leaves it to the administrator.";
    console.keyMap =
      option (types.either types.str types.path) "us"
        "The keyboard map of the console; nothing loads it here.";
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
