# The options of the SLURM cluster, `nixbench.slurm`.
#
# Only the controller has a slurm.conf, and the other nodes get it from the controller ("configless"). By default, compute nodes
# register with the controller ("dynamic nodes"). So the system of a node depends only on the address of the controller, and no
# system changes when compute nodes are added or removed. Only with a static list of nodes (static-nodes.nix) does the system of
# the controller change.
{
  config,
  lib,
  options,
  pkgs,
  runtime,
  ...
}:
let
  inherit (lib) mkOption types;
  cfg = config.nixbench.slurm;
  facts = if runtime == null then { } else runtime;

  scalar = types.oneOf [
    types.int
    types.bool
    types.singleLineStr
  ];
  value = types.either scalar (types.listOf types.singleLineStr);
  word = types.strMatching "[A-Za-z0-9][A-Za-z0-9_.-]*";
in
{
  # interface
  options.nixbench.slurm = {
    role = mkOption {
      type = types.nullOr (
        types.enum [
          "controller"
          "compute"
          "login"
          "accounting"
        ]
      );
      default = null;
      example = "compute";
      description = "Role of the node in the cluster. With null, the SLURM modules change nothing on the node.";
    };
    package = mkOption {
      type = types.package;
      default = pkgs.slurm;
      defaultText = lib.literalExpression "pkgs.slurm";
      example = lib.literalExpression "pkgs.slurm";
      description = "Package with SLURM, release 23.11 or later.";
    };
    clusterName = mkOption {
      type = types.strMatching "[a-z0-9][a-z0-9_-]*";
      default = lib.toLower (builtins.replaceStrings [ "." ] [ "-" ] (facts.cluster or "slurm"));
      defaultText = lib.literalMD "the cluster's name in the facts, or `slurm`";
      example = "production";
      description = "Name of the cluster. slurmctld refuses to start with the state of a cluster that has another name.";
    };
    controllerRole = mkOption {
      type = types.str;
      default = "controller";
      example = "head";
      description = "Role of the hive whose node is the controller.";
    };
    controller = {
      name = mkOption {
        type = types.nullOr word;
        default = lib.findFirst (_: true) null (facts.roles.${cfg.controllerRole} or [ ]);
        defaultText = lib.literalMD "the first node of `controllerRole` in the facts";
        example = "head";
        description = "Host name of the controller, as `hostname -s` prints it there.";
      };
      address = mkOption {
        type = types.nullOr word;
        default = (facts.nodes.${toString cfg.controller.name} or { }).address or null;
        defaultText = lib.literalMD "the address of the controller in the facts";
        example = "192.168.222.11";
        description = "Address at which all nodes reach the controller.";
      };
    };
    accountingRole = mkOption {
      type = types.str;
      default = "accounting";
      example = "controller";
      description = ''
        Role whose node runs slurmdbd and its database; without such a role, there is no accounting. With the
        value of `controllerRole`, both run on the controller.
      '';
    };
    accounting = {
      name = mkOption {
        type = types.nullOr word;
        default = lib.findFirst (_: true) null (facts.roles.${cfg.accountingRole} or [ ]);
        defaultText = lib.literalMD "the first node of `accountingRole` in the facts";
        example = "accounts";
        description = "Host name of the node with slurmdbd, as `hostname -s` prints it there.";
      };
      address = mkOption {
        type = types.nullOr word;
        default = (facts.nodes.${toString cfg.accounting.name} or { }).address or null;
        defaultText = lib.literalMD "the address of that node in the facts";
        example = "192.168.222.12";
        description = "Address at which the controller and login nodes reach slurmdbd.";
      };
    };
    features = mkOption {
      type = types.listOf word;
      default = lib.filter (tag: builtins.match "[A-Za-z0-9][A-Za-z0-9_.-]*" tag != null) (
        if options ? deployment.tags then config.deployment.tags else [ ]
      );
      defaultText = lib.literalMD "`deployment.tags`";
      example = [ "ssd" ];
      description = ''
        Features of a compute node, in addition to the name of its role in the hive. Jobs select nodes by features, as
        in `sbatch --constraint=ssd`.
      '';
    };
    rolePartitions = mkOption {
      type = types.listOf word;
      default = [ ];
      example = [
        "compute"
        "gpu"
      ];
      description = "Roles of the hive that have a partition of their own. The partition has the name of the role.";
    };
    partitions = mkOption {
      type = types.attrsOf (types.attrsOf value);
      default = { };
      example.short = {
        Nodes = "ALL";
        MaxTime = "01:00:00";
      };
      description = "Partitions with their parameters in slurm.conf. The partition `main` has all nodes and is the default of jobs.";
    };
    settings = mkOption {
      type = types.attrsOf value;
      default = { };
      example = {
        SchedulerType = "sched/backfill";
        InactiveLimit = 120;
      };
      description = "Parameters in slurm.conf. true is written as `YES`, false as `NO`, and a list with commas.";
    };
    schedulerParameters = mkOption {
      type = types.attrsOf scalar;
      default = { };
      example = {
        bf_interval = 10;
        defer = true;
      };
      description = ''
        Parts of `SchedulerParameters` in slurm.conf, which several modules can set. true is a part without a
        value, and false leaves it out. A part in `settings.SchedulerParameters` wins.
      '';
    };
    cgroup = {
      enable = mkOption {
        type = types.bool;
        default = !config.boot.isContainer;
        defaultText = lib.literalExpression "!config.boot.isContainer";
        example = false;
        description = ''
          Whether compute nodes confine jobs with cgroups and bind tasks to processors. Containers on a
          host with cgroup v1 cannot. Set this option to the same value on all nodes.
        '';
      };
      settings = mkOption {
        type = types.attrsOf scalar;
        default = { };
        example.ConstrainRAMSpace = true;
        description = "Parameters in cgroup.conf.";
      };
    };
    node = mkOption {
      type = types.attrsOf scalar;
      default = { };
      example = {
        CPUs = 2;
        Gres = "gpu:1";
      };
      description = "Parameters with which a compute node registers, in addition to its features. slurmd detects the others, such as the number of processors.";
    };
    openFirewall = mkOption {
      type = types.bool;
      default = true;
      example = false;
      description = "Whether the firewall lets SLURM's daemons and `srun` connect to the node.";
    };
    hollow = mkOption {
      type = types.ints.unsigned;
      default = if options ? deployment.hollow then config.deployment.hollow else 0;
      defaultText = lib.literalMD "`hollow` of the role";
      example = 100;
      description = ''
        Number of compute nodes for which this machine stands. With 0, it is one. SLURM must be built with
        `--enable-multiple-slurmd`.
      '';
    };
    drainTimeout = mkOption {
      type = types.ints.positive;
      default = 300;
      example = 86400;
      description = "Seconds that nixbench waits for the jobs of a node to end, before it changes the node. The controller's value counts.";
    };
    configured = mkOption {
      type = types.bool;
      internal = true;
      readOnly = true;
      default =
        if cfg.role == "accounting" then
          cfg.accounting.name != null && cfg.accounting.address != null
        else
          cfg.role != null && cfg.controller.name != null && cfg.controller.address != null;
      description = "Whether the node has all settings that it needs to be part of a cluster.";
    };
  };

  # implementation
  config.assertions = lib.mkIf (cfg.role != null) [
    {
      assertion = runtime == null || cfg.role == "accounting" || cfg.configured;
      message = "nixbench.slurm.controller is not set and the facts have no node of the role ${cfg.controllerRole}; add that role with modules/slurm/controller.nix, or set nixbench.slurm.controllerRole.";
    }
    {
      assertion = lib.length (facts.roles.${cfg.controllerRole} or [ ]) < 2;
      message = "the role ${cfg.controllerRole} has several nodes, and the SLURM modules support one controller; set roles.${cfg.controllerRole}.count to 1.";
    }
    {
      assertion = runtime == null || cfg.role != "accounting" || cfg.configured;
      message = "nixbench.slurm.accounting is not set and the facts have no node of the role ${cfg.accountingRole}; set nixbench.slurm.accountingRole to the role with modules/slurm/accounting.nix.";
    }
    {
      assertion = lib.length (facts.roles.${cfg.accountingRole} or [ ]) < 2;
      message = "the role ${cfg.accountingRole} has several nodes, and the SLURM modules support one slurmdbd; set roles.${cfg.accountingRole}.count to 1.";
    }
    {
      assertion = cfg.hollow == 0 || cfg.role == "compute";
      message = "`hollow` is ${toString cfg.hollow} on a node with the role ${cfg.role}, and only a compute node can stand for several nodes; remove roles.NAME.hollow.";
    }
    {
      assertion = lib.versionAtLeast cfg.package.version "23.11";
      message = "nixbench.slurm.package is SLURM ${cfg.package.version}, and the modules need 23.11 or later; use a newer package.";
    }
  ];
}
