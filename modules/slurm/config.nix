# slurm.conf and cgroup.conf, which this module makes through NixOS' options. Only the controller uses them.
{
  config,
  lib,
  runtime,
  ...
}:
let
  cfg = config.nixbench.slurm;
  facts = if runtime == null then { } else runtime;
  hasHollow = lib.any (node: node.hollow or 0 > 0) (lib.attrValues (facts.nodes or { }));

  formatValue =
    value:
    if builtins.isBool value then
      (if value then "YES" else "NO")
    else
      lib.concatMapStringsSep "," toString (lib.toList value);
  formatLines = settings: lib.concatStrings (lib.mapAttrsToList (n: v: "${n}=${formatValue v}\n") settings);
  formatWords = settings: lib.concatStringsSep " " (lib.mapAttrsToList (n: v: "${n}=${formatValue v}") settings);

  # The setting SchedulerParameters: its parts in cfg.settings, and those of cfg.schedulerParameters with other names.
  schedulerParameters =
    let
      own = lib.concatMap (part: lib.splitString "," (toString part)) (
        lib.toList (cfg.settings.SchedulerParameters or [ ])
      );
      ownNames = map (part: builtins.head (lib.splitString "=" part)) own;
      others = removeAttrs (lib.filterAttrs (_: value: value != false) cfg.schedulerParameters) ownNames;
      parts = own ++ lib.mapAttrsToList (n: v: if v == true then n else "${n}=${toString v}") others;
    in
    lib.optionalAttrs (parts != [ ]) { SchedulerParameters = parts; };

  # A partition of a role contains the nodes that have the name of the role as a feature.
  nodeSets = lib.concatMapStrings (role: "NodeSet=${role} Feature=${role}\n") cfg.rolePartitions;
in
{
  config = lib.mkIf cfg.configured {
    nixbench.slurm.partitions = {
      main = {
        Nodes = lib.mkDefault "ALL";
        Default = lib.mkDefault true;
        MaxTime = lib.mkDefault "INFINITE";
        State = lib.mkDefault "UP";
      };
    }
    // lib.genAttrs cfg.rolePartitions (role: {
      Nodes = lib.mkDefault role;
      MaxTime = lib.mkDefault "INFINITE";
      State = lib.mkDefault "UP";
    });

    nixbench.slurm.settings = {
      SlurmctldParameters = [ "enable_configless" ];
    }
    // lib.mapAttrs (_: lib.mkDefault) {
      SelectType = "select/cons_tres";
      SelectTypeParameters = "CR_Core";
      ProctrackType = if cfg.cgroup.enable then "proctrack/cgroup" else "proctrack/linuxproc";
      # Refuse jobs of root, because with such a job, root of one node is root on all nodes.
      DisableRootJobs = true;
      # With this value, a node takes jobs again after a failure as soon as it registers with all the resources that it had
      # before.
      ReturnToService = 2;
      # The ports on which srun listens. Without this setting, srun uses any port, and the firewall opens no such port.
      SrunPortRange = "60001-63000";
      SlurmdSpoolDir = if hasHollow then "/var/spool/slurmd/%n" else "/var/spool/slurmd";
    }
    // lib.optionalAttrs hasHollow {
      SlurmdPidFile = lib.mkDefault "/run/slurmd-%n.pid";
    }
    // lib.optionalAttrs (cfg.membership == "dynamic") {
      # The maximum number of dynamic nodes (nodes that register with the controller and are not in slurm.conf).
      MaxNodeCount = lib.mkDefault (if hasHollow then 16384 else 1024);
      # With this value, the controller sends messages to all nodes itself. Nodes cannot forward messages, because they do not
      # know the addresses of dynamic nodes.
      TreeWidth = lib.mkDefault 65533;
    }
    // lib.optionalAttrs cfg.cgroup.enable {
      TaskPlugin = lib.mkDefault [
        "task/cgroup"
        "task/affinity"
      ];
    };
    nixbench.slurm.cgroup.settings.CgroupPlugin = lib.mkDefault (
      if cfg.cgroup.enable then "autodetect" else "disabled"
    );

    services.slurm = lib.mkIf (cfg.role == "controller") {
      inherit (cfg) clusterName;
      procTrackType = cfg.settings.ProctrackType;
      nodeName = lib.optionals (cfg.membership == "static") (
        lib.mapAttrsToList (n: settings: "${n} ${formatWords settings}") cfg.staticNodes
      );
      partitionName = lib.mapAttrsToList (n: settings: "${n} ${formatWords settings}") cfg.partitions;
      extraConfig =
        "SlurmctldHost=${cfg.controller.name}(${cfg.controller.address})\n"
        + nodeSets
        + formatLines (removeAttrs (cfg.settings // schedulerParameters) [ "ProctrackType" ]);
      extraCgroupConfig = formatLines cfg.cgroup.settings;
    };

    networking.firewall.allowedTCPPortRanges = lib.mkIf cfg.openFirewall [
      {
        from = 6817; # slurmctld, slurmd, slurmdbd
        to = 6819;
      }
      {
        from = 60001;
        to = 63000;
      }
    ];
  };
}
