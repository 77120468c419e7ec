# The guest's journald and resolved: what is said here adds to their configuration.
{ config, lib, ... }:
let
  inherit (lib) types;
  inherit (import ../../lib/option.nix { inherit lib; }) option;
  inherit (config.services) journald resolved;
  words = name: list: lib.optionalString (list != [ ]) "${name}=${toString list}\n";
in
{
  options.services = {
    journald = {
      storage =
        option (types.enum [ "persistent" "volatile" "auto" "none" ]) "persistent"
          "Where the journal is kept.";
      extraConfig = option types.lines "" "Lines at the end of journald's configuration.";
    };
    resolved = {
      enable = option types.bool false "Whether systemd-resolved looks up names.";
      fallbackDns =
        option (types.nullOr (types.listOf types.str)) null
          "Name servers for when there are no others.";
      domains = option (types.listOf types.str) config.networking.search "Domains to search.";
      extraConfig = option types.lines "" "Lines at the end of resolved's configuration.";
    };
  };

  config = lib.mkMerge [
    {
      environment.etc."systemd/journald.conf.d/50-nixos.conf".text =
        "[Journal]\nStorage=${journald.storage}\n${journald.extraConfig}";
    }
    (lib.mkIf resolved.enable {
      environment.etc."systemd/resolved.conf.d/50-nixos.conf".text =
        "[Resolve]\n"
        + words "DNS" config.networking.nameservers
        + lib.optionalString (resolved.fallbackDns != null) (words "FallbackDNS" resolved.fallbackDns)
        + words "Domains" resolved.domains
        + resolved.extraConfig;
      environment.etc."resolv.conf" = {
        source = "/run/systemd/resolve/stub-resolv.conf";
        mode = "direct-symlink";
      };
      systemd.services.systemd-resolved = {
        wantedBy = [ "multi-user.target" ];
        restartTriggers = [ config.environment.etc."systemd/resolved.conf.d/50-nixos.conf".source ];
      };
    })
  ];
}
