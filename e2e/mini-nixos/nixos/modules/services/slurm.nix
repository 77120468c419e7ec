# services.slurm, with the guest's SLURM. NixOS puts wrappers of the commands on PATH. Those of several
# releases pass on "$0" instead of the arguments where SLURM_CONF is set, as it is in every batch
# job. These here do the same, so that nothing can depend on the wrappers.
{ config, lib, pkgs, ... }:
let
  inherit (lib) types;
  inherit (import ../../lib/option.nix { inherit lib; }) option;
  cfg = config.services.slurm;
  text = option types.lines "";
  nullableName = default: option (types.nullOr types.str) default;

  slurmConf = pkgs.writeTextDir "slurm.conf" ''
    ClusterName=${cfg.clusterName}
    StateSaveLocation=${cfg.stateSaveLocation}
    SlurmUser=${cfg.user}
    ${lib.optionalString (cfg.controlMachine != null) "controlMachine=${cfg.controlMachine}"}
    ${lib.optionalString (cfg.controlAddr != null) "controlAddr=${cfg.controlAddr}"}
    ${toString (map (x: "NodeName=${x}\n") cfg.nodeName)}
    ${toString (map (x: "PartitionName=${x}\n") cfg.partitionName)}
    PlugStackConfig=${plugStackConfig}/plugstack.conf
    ProctrackType=${cfg.procTrackType}
    ${cfg.extraConfig}
  '';
  plugStackConfig = pkgs.writeTextDir "plugstack.conf" cfg.extraPlugstackConfig;
  etcSlurm = pkgs.symlinkJoin {
    name = "etc-slurm";
    paths = [
      slurmConf
      (pkgs.writeTextDir "cgroup.conf" cfg.extraCgroupConfig)
      plugStackConfig
    ]
    ++ cfg.extraConfigPaths;
  };

  wrappers = pkgs.runCommand "wrappedSlurm" { } ''
    mkdir -p "$out/bin"
    for program in ${cfg.package}/bin/*; do
      cat > "$out/bin/''${program##*/}" <<EOT
    #!/bin/sh
    if [ -z "\$SLURM_CONF" ]
    then
      SLURM_CONF="${cfg.etcSlurm}/slurm.conf" "$program" "\$@"
    else
      "$program" "\$0"
    fi
    EOT
    done
    chmod +x "$out"/bin/*
  '';
  kill = "${pkgs.coreutils}/bin/kill";

  slurmdbdConf = pkgs.writeText "slurmdbd.conf" ''
    DbdHost=${cfg.dbdserver.dbdHost}
    SlurmUser=${cfg.user}
    StorageType=accounting_storage/mysql
    StorageUser=${cfg.dbdserver.storageUser}
    ${cfg.dbdserver.extraConfig}
  '';
in
{
  options.services.slurm = {
    server.enable = option types.bool false "Whether to run slurmctld.";
    client.enable = lib.mkEnableOption "slurm client daemon";
    dbdserver = {
      enable = option types.bool false "Whether to run slurmdbd.";
      dbdHost = option types.str config.networking.hostName "Short host name of the machine with slurmdbd.";
      storageUser = option types.str cfg.user "User of the database.";
      extraConfig = text "Further lines of slurmdbd.conf.";
    };
    enableStools = option types.bool false "Whether to provide slurm.conf without a daemon.";
    package = option types.package pkgs.slurm "The package with SLURM.";
    controlMachine = nullableName null "Short host name of the controller.";
    controlAddr = nullableName cfg.controlMachine "Name to reach the controller by.";
    clusterName = option types.str "default" "Name of the cluster.";
    nodeName = option (types.listOf types.str) [ ] "Nodes, with their parameters.";
    partitionName = option (types.listOf types.str) [ ] "Partitions, with their parameters.";
    procTrackType = option types.str "proctrack/linuxproc" "Plugin that tracks processes.";
    stateSaveLocation = option types.str "/var/spool/slurmctld" "Directory of slurmctld's state.";
    user = option types.str "slurm" "User of slurmctld.";
    extraConfig = text "Further lines of slurm.conf.";
    extraPlugstackConfig = text "Lines of plugstack.conf.";
    extraCgroupConfig = text "Lines of cgroup.conf.";
    extraConfigPaths = option (types.listOf types.path) [ ] "Directories to merge into that of slurm.conf.";
    etcSlurm = lib.mkOption {
      type = types.path;
      internal = true;
      default = etcSlurm;
      description = "Directory with slurm.conf.";
    };
  };

  config = lib.mkIf (cfg.enableStools || cfg.client.enable || cfg.server.enable || cfg.dbdserver.enable) {
    environment.systemPackages = [ wrappers ];
    services.munge.enable = lib.mkDefault true;

    users.users.slurm = lib.mkIf (cfg.user == "slurm") {
      group = "slurm";
      isSystemUser = true;
      uid = 307;
    };
    users.groups.slurm.gid = 307;

    systemd.tmpfiles.rules = lib.optional cfg.client.enable "d /var/spool/slurmd 755 root root -";

    systemd.services.slurmd = lib.mkIf cfg.client.enable {
      path = [ wrappers pkgs.coreutils ];
      wantedBy = [ "multi-user.target" ];
      # munge.service is the mistake of NixOS: the unit's name is munged.service.
      after = [ "systemd-tmpfiles-clean.service" "munge.service" "network-online.target" "remote-fs.target" ];
      wants = [ "network-online.target" ];
      serviceConfig = {
        Type = "forking";
        KillMode = "process";
        ExecStart = "${wrappers}/bin/slurmd";
        PIDFile = "/run/slurmd.pid";
        ExecReload = "${kill} -HUP $MAINPID";
        LimitMEMLOCK = "infinity";
        Delegate = "Yes";
      };
    };

    systemd.services.slurmctld = lib.mkIf cfg.server.enable {
      path = [ wrappers pkgs.munge pkgs.coreutils ];
      wantedBy = [ "multi-user.target" ];
      after = [ "network.target" "munged.service" ];
      requires = [ "munged.service" ];
      serviceConfig = {
        Type = "forking";
        ExecStart = "${wrappers}/bin/slurmctld";
        PIDFile = "/run/slurmctld.pid";
        ExecReload = "${kill} -HUP $MAINPID";
      };
      preStart = ''
        mkdir -p ${cfg.stateSaveLocation}
        chown -R ${cfg.user}:slurm ${cfg.stateSaveLocation}
      '';
    };

    systemd.services.slurmdbd = lib.mkIf cfg.dbdserver.enable {
      path = [ wrappers pkgs.munge pkgs.coreutils ];
      wantedBy = [ "multi-user.target" ];
      after = [ "network.target" "munged.service" "mysql.service" ];
      requires = [ "munged.service" "mysql.service" ];
      # slurmdbd looks for its file beside the one that SLURM_CONF names.
      preStart = ''
        install -m 600 -o ${cfg.user} -T ${slurmdbdConf} "$RUNTIME_DIRECTORY/slurmdbd.conf"
      '';
      script = ''
        export SLURM_CONF=$RUNTIME_DIRECTORY/slurmdbd.conf
        exec ${cfg.package}/bin/slurmdbd -D
      '';
      serviceConfig = {
        RuntimeDirectory = "slurmdbd";
        Type = "simple";
        PIDFile = "/run/slurmdbd.pid";
        ExecReload = "${kill} -HUP $MAINPID";
      };
    };
  };
}
