# virtualisation.cri-o, with the guest's CRI-O.
{ config, lib, pkgs, ... }:
let
  inherit (import ../../lib/option.nix { inherit lib; }) option;
  cfg = config.virtualisation.cri-o;
  toml = pkgs.formats.toml { };
in
{
  options.virtualisation.cri-o = {
    enable = lib.mkEnableOption "CRI-O";
    settings = option toml.type { } "Settings of CRI-O.";
  };

  config = lib.mkIf cfg.enable {
    environment.etc."crio/crio.conf.d/00-default.conf".source =
      toml.generate "00-default.conf" cfg.settings;
    environment.systemPackages = [ pkgs.cri-o pkgs.cri-tools ];
    systemd.services.crio = {
      description = "CRI-O";
      wantedBy = [ "multi-user.target" ];
      after = [ "network.target" ];
      path = [ pkgs.runc pkgs.conmon ];
      restartTriggers = [ config.environment.etc."crio/crio.conf.d/00-default.conf".source ];
      serviceConfig = {
        Type = "notify";
        ExecStart = "${pkgs.cri-o}/bin/crio";
      };
    };
  };
}
