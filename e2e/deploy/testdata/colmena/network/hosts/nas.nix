{ config, ... }:
{
  environment.etc."which".text = "nas";
  users.groups.backup-readers = { };
  users.users.backup = {
    isSystemUser = true;
    group = "backup-readers";
  };
  deployment.keys = {
    "backup.key" = {
      keyFile = ../backup.key;
      destDir = "/var/lib/keys";
      user = "backup";
      group = "backup-readers";
      permissions = "0440";
    };
    token = {
      keyCommand = [
        "printf"
        "%s"
        "from a command"
      ];
      uploadAt = "post-activation";
    };
    motd.text = "not really a secret";
  };
  # Starts as soon as the key is there.
  systemd.services.backup = {
    wantedBy = [ "multi-user.target" ];
    after = [ "backup.key-key.service" ];
    wants = [ "backup.key-key.service" ];
    serviceConfig.Type = "oneshot";
    serviceConfig.RemainAfterExit = true;
    script = "cat ${config.deployment.keys."backup.key".path} > /run/backup-read";
  };
}
