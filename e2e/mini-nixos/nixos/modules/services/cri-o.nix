# virtualisation.cri-o, with the guest's CRI-O.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib) mkOption;
  cfg = config.virtualisation.cri-o;
  toml = pkgs.formats.toml { };
in
{
  options.virtualisation.cri-o = {
    enable = lib.mkEnableOption "Container Runtime Interface for OCI (CRI-O)";
    settings = mkOption {
      inherit (toml) type;
      default = { };
      description = "Settings of CRI-O.";
    };
  };

  config = lib.mkIf cfg.enable {
    environment.etc."crio/crio.conf.d/00-default.conf".source =
      toml.generate "00-default.conf" cfg.settings;
    environment.systemPackages = [
      pkgs.cri-o
      pkgs.cri-tools
    ];
    systemd.services.crio = {
      description = "Container Runtime Interface for OCI (CRI-O)";
      wantedBy = [ "multi-user.target" ];
      after = [ "network.target" ];
      path = [
        pkgs.runc
        pkgs.conmon
      ];
      restartTriggers = [ config.environment.etc."crio/crio.conf.d/00-default.conf".source ];
      serviceConfig = {
        Type = "notify";
        ExecStart = "${pkgs.cri-o}/bin/crio";
        ExecReload = "/bin/kill -s HUP $MAINPID";
        Restart = "on-abnormal";
        TimeoutStartSec = "0";
      };
    };
  };
}
