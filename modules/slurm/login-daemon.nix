# sackd, for which NixOS has no options. sackd fetches the configuration from the controller when it starts and whenever the
# configuration changes.
{
  config,
  lib,
  ...
}:
let
  cfg = config.nixbench.slurm;
in
{
  config = lib.mkIf (cfg.configured && cfg.role == "login") {
    systemd.services.sackd = {
      description = "SLURM's daemon of login nodes";
      wantedBy = [ "multi-user.target" ];
      after = [
        "munged.service"
        "network-online.target"
      ];
      wants = [ "network-online.target" ];
      requires = [ "munged.service" ];
      startLimitIntervalSec = 0;
      serviceConfig = {
        ExecStart = "${lib.getBin cfg.package}/bin/sackd -D --conf-server ${cfg.controller.address}";
        RuntimeDirectory = "slurm";
        Restart = "always";
        RestartSec = 1;
      };
    };
  };
}
