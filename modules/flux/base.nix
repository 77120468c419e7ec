# The options of the Flux instance, `nixbench.flux`.
#
# Each broker needs the list of all hosts when it starts. Flux reads the list of resources only when the leader starts, and a
# start of the leader ends all jobs. So both lists contain more nodes than exist: the nodes of a role are ROLE-1, ROLE-2 and so
# on, up to `capacity`. For Flux, a node that does not exist is switched off. So no NixOS system changes when compute nodes are
# added or removed.
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
  cfg = config.nixbench.flux;
  hollow = if options ? deployment.hollow then config.deployment.hollow else 0;
  facts = if runtime == null then { } else runtime;
  nodesOf = role: facts.roles.${role} or [ ];
  word = types.strMatching "[A-Za-z0-9][A-Za-z0-9.-]*";

  # The smallest power of two that is at least 64 and at least n.
  roundUp = n: (lib.findFirst (size: size >= n) n (lib.genList (i: 64 * (lib.foldl' (x: _: x * 2) 1 (lib.range 1 i))) 12));

  computeRole =
    { name, ... }:
    let
      firstNode = lib.findFirst (_: true) null (nodesOf name);
    in
    {
      options = {
        capacity = mkOption {
          type = types.ints.positive;
          default = roundUp (lib.length (nodesOf name));
          defaultText = lib.literalMD "64, or the next power of two if the role has more nodes";
          example = 16;
          description = "Number of nodes of the role that the instance may have. A change restarts all brokers.";
        };
        cores = mkOption {
          type = types.nullOr types.ints.positive;
          default = (facts.nodes.${toString firstNode} or { }).vcpus or null;
          defaultText = lib.literalMD "`vcpus` of the role";
          example = 32;
          description = "Number of cores of each node. Flux drains a node that has fewer.";
        };
        gpus = mkOption {
          type = types.ints.unsigned;
          default = 0;
          example = 4;
          description = "Number of GPUs of each node.";
        };
        properties = mkOption {
          type = types.listOf word;
          default = [ name ];
          defaultText = lib.literalMD "the name of the role";
          example = [ "a100" ];
          description = "Properties by which jobs select nodes, as in `flux run --requires=a100`.";
        };
      };
    };
in
{
  # interface
  options.nixbench.flux = {
    role = mkOption {
      type = types.nullOr (
        types.enum [
          "leader"
          "compute"
        ]
      );
      default = null;
      example = "compute";
      description = "Role of the node in the instance. With null, the Flux modules change nothing on the node.";
    };
    package = mkOption {
      type = types.package;
      default = pkgs.flux-core or (pkgs.callPackage ./packages { }).flux-core;
      defaultText = lib.literalMD "`pkgs.flux-core` if nixpkgs has it, otherwise the package in `modules/flux/packages`";
      example = lib.literalExpression "pkgs.flux-core";
      description = "Package with flux-core. All nodes must have the same version.";
    };
    schedulerPackage = mkOption {
      type = types.nullOr types.package;
      default = null;
      example = lib.literalExpression "(pkgs.callPackage ./modules/flux/packages { }).flux-sched";
      description = "Package with flux-sched, whose scheduler, Fluxion, then replaces the simple one of flux-core.";
    };
    leaderRole = mkOption {
      type = types.str;
      default = "leader";
      example = "head";
      description = "Role of the hive whose node is the leader.";
    };
    leader = {
      name = mkOption {
        type = types.nullOr word;
        default = lib.findFirst (_: true) null (nodesOf cfg.leaderRole);
        defaultText = lib.literalMD "the first node of `leaderRole` in the facts";
        example = "head";
        description = "Host name of the leader, as `hostname` prints it there.";
      };
      address = mkOption {
        type = types.nullOr types.str;
        default = (facts.nodes.${toString cfg.leader.name} or { }).address or null;
        defaultText = lib.literalMD "the address of the leader in the facts";
        example = "192.168.222.11";
        description = "Address at which all nodes reach the leader.";
      };
    };
    computeRoles = mkOption {
      type = types.attrsOf (types.submodule computeRole);
      default = {
        compute = { };
      };
      example = {
        compute.capacity = 128;
        gpu = {
          capacity = 8;
          gpus = 4;
        };
      };
      description = "Roles of the hive with compute nodes. Set this option to the same value on all nodes, in `defaults`.";
    };
    settings = mkOption {
      type = types.attrsOf types.anything;
      default = { };
      example.job-manager.inactive-age-limit = "7d";
      description = "Settings of the instance, as in flux-config(5). A change restarts the brokers.";
    };
    port = mkOption {
      type = types.port;
      default = 8050;
      example = 9001;
      description = "Port on which the leader's broker listens.";
    };
    uid = mkOption {
      type = types.ints.between 1 65533;
      default = 395;
      example = 500;
      description = "User and group id of the user `flux`. It must be the same on all nodes.";
    };
    openFirewall = mkOption {
      type = types.bool;
      default = true;
      example = false;
      description = ''
        Whether the firewall lets nodes connect to the leader's broker, and to the ports 32768 to 60999, on which
        the brokers of `flux batch` listen.
      '';
    };
    drainTimeout = mkOption {
      type = types.ints.positive;
      default = 300;
      example = 86400;
      description = "Seconds that nixbench waits for the jobs of a node to end, before it changes the node. The leader's value counts.";
    };
    configured = mkOption {
      type = types.bool;
      internal = true;
      readOnly = true;
      default = cfg.role != null && cfg.leader.name != null && cfg.leader.address != null;
      description = "Whether the node has all settings that it needs to be part of an instance.";
    };
  };

  # implementation
  config.assertions = lib.mkIf (cfg.role != null) (
    [
      {
        assertion = runtime == null || cfg.configured;
        message = "nixbench.flux.leader is not set and the facts have no node of the role ${cfg.leaderRole}; add that role with modules/flux/leader.nix, or set nixbench.flux.leaderRole.";
      }
      {
        assertion = lib.length (nodesOf cfg.leaderRole) < 2;
        message = "the role ${cfg.leaderRole} has several nodes, and a Flux instance has one leader; set roles.${cfg.leaderRole}.count to 1.";
      }
      {
        assertion = hollow == 0;
        message = "`hollow` of the role is ${toString hollow}, and Flux has no hollow nodes; remove roles.NAME.hollow.";
      }
    ]
    ++ lib.concatLists (
      lib.mapAttrsToList (role: r: [
        {
          assertion = runtime == null || r.cores != null;
          message = "nixbench.flux.computeRoles.${role}.cores is not set, and the facts have no node of the role ${role} with vcpus; set it to the number of cores of these nodes, or remove the role.";
        }
        {
          assertion = lib.length (nodesOf role) <= r.capacity;
          message = "the role ${role} has more nodes than nixbench.flux.computeRoles.${role}.capacity; increase it.";
        }
      ]) cfg.computeRoles
    )
  );
}
