# Flux's broker as a systemd unit, the user flux, who owns the instance, and Flux's commands.
#
# When a broker restarts, the jobs on its node end. When the leader's broker restarts, the jobs on all nodes end: the other
# brokers exit, and systemd starts them again. The queue of jobs is in /var/lib/flux on the leader.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  cfg = config.nixbench.flux;
  attributes = {
    rundir = "/run/flux";
    statedir = "/var/lib/flux";
    local-uri = "local:///run/flux/local";
    log-stderr-level = 6;
    log-stderr-mode = "local";
    "broker.rc2_none" = 1;
    # The leader schedules jobs without waiting for other nodes.
    "broker.quorum" = 1;
    "broker.quorum-warn" = "none";
    "broker.cleanup-timeout" = 45;
    # With this exit code, `flux shutdown` ends the instance until somebody starts the systemd unit again.
    "broker.exit-norestart" = 42;
  };
in
{
  config = lib.mkIf cfg.configured {
    users.users.flux = {
      isSystemUser = true;
      group = "flux";
      inherit (cfg) uid;
      home = "/var/lib/flux";
      shell = pkgs.bashInteractive;
    };
    users.groups.flux.gid = cfg.uid;
    environment.systemPackages = [ cfg.package ];

    # flux-core that is built with flux-security needs this file even for jobs of the user flux, which are not signed. The file
    # must not be a symbolic link.
    environment.etc."flux/security/conf.d/sign.toml" = {
      mode = "0444";
      text = ''
        [sign]
        max-ttl = 1209600
        default-type = "munge"
        allowed-types = [ "munge", "none" ]
      '';
    };

    systemd.services.flux = {
      description = "Broker of Flux";
      wantedBy = [ "multi-user.target" ];
      after = [ "network-online.target" ];
      wants = [ "network-online.target" ];
      startLimitIntervalSec = 0;
      path = [
        cfg.package
        pkgs.bash
        pkgs.coreutils
      ];
      environment = lib.mkIf (cfg.schedulerPackage != null) {
        FLUX_MODULE_PATH_PREPEND = "${cfg.schedulerPackage}/lib/flux/modules";
        FLUX_MODPROBE_PATH_APPEND = "${cfg.schedulerPackage}/etc/flux/modprobe";
        FLUX_EXEC_PATH_PREPEND = "${cfg.schedulerPackage}/libexec/flux/cmd";
      };
      serviceConfig = {
        # With this type, a switch does not wait until the broker has connected to the leader, which may be switched at the same
        # time.
        Type = "simple";
        ExecStart = "${lib.getBin cfg.package}/bin/flux broker --config-path=${cfg.configFile} ${
          lib.concatStringsSep " " (lib.mapAttrsToList (name: value: "-S${name}=${toString value}") attributes)
        }";
        User = "flux";
        Group = "flux";
        StateDirectory = "flux";
        StateDirectoryMode = "0700";
        RuntimeDirectory = "flux";
        WorkingDirectory = "/var/lib/flux";
        Delegate = true;
        KillMode = "mixed";
        TimeoutStopSec = 90;
        Restart = "always";
        RestartSec = 1;
        RestartPreventExitStatus = 42;
        SuccessExitStatus = 42;
        LimitMEMLOCK = "infinity";
        SyslogIdentifier = "flux";
      };
    };

    networking.firewall = lib.mkIf cfg.openFirewall {
      allowedTCPPorts = lib.optional (cfg.role == "leader") cfg.port;
      allowedTCPPortRanges = [
        {
          from = 32768;
          to = 60999;
        }
      ];
    };
  };
}
