# services.munge, with the guest's munged.
{ config, lib, pkgs, ... }:
let
  inherit (lib) types;
  inherit (import ../../lib/option.nix { inherit lib; }) option;
  cfg = config.services.munge;
in
{
  options.services.munge = {
    enable = lib.mkEnableOption "munge service";
    password = option types.path "/etc/munge/munge.key" "The path of the daemon's secret key.";
  };

  config = lib.mkIf cfg.enable {
    environment.systemPackages = [ pkgs.munge ];

    users.users.munge = {
      description = "Munge daemon user";
      isSystemUser = true;
      group = "munge";
    };
    users.groups.munge = { };

    systemd.services.munged = {
      wantedBy = [ "multi-user.target" ];
      wants = [ "network-online.target" "time-sync.target" ];
      after = [ "network-online.target" "time-sync.target" ];
      path = [ pkgs.munge pkgs.coreutils ];
      serviceConfig = {
        ExecStartPre = "+${pkgs.coreutils}/bin/chmod 0400 ${cfg.password}";
        ExecStart = "${pkgs.munge}/bin/munged --foreground --key-file ${cfg.password}";
        User = "munge";
        Group = "munge";
        StateDirectory = "munge";
        StateDirectoryMode = "0711";
        Restart = "on-failure";
        RuntimeDirectory = "munge";
      };
    };
  };
}
