# The static list of compute nodes in slurm.conf, made from the facts. Only the system of the controller depends on this list.
{
  config,
  lib,
  runtime,
  ...
}:
let
  inherit (lib) mkOption types;
  cfg = config.nixbench.slurm;
  facts = if runtime == null then { } else runtime;
  mebibytes = import ./mebibytes.nix;

  scalar = types.oneOf [
    types.int
    types.bool
    types.singleLineStr
  ];
  parameters = types.attrsOf (types.either scalar (types.listOf types.singleLineStr));

  # Returns the memory of a node that slurm.conf says, from the memory of its machine. SLURM drains a node with less memory than
  # slurm.conf says, and the kernel of a virtual machine uses a part of the machine's memory. A container has no kernel of its
  # own.
  availableMemory = size: if config.boot.isContainer then size else size - size / 16 - 64;

  # The parameters of the nodes of a role.
  describeNode =
    role: settings: name:
    let
      fact = facts.nodes.${name};
      hasSize = fact ? vcpus && fact ? memory;
    in
    lib.nameValuePair name (
      lib.mapAttrs (_: lib.mkDefault) (
        {
          NodeAddr = fact.address;
          State = "UNKNOWN";
        }
        // lib.optionalAttrs hasSize {
          CPUs = fact.vcpus;
          RealMemory = availableMemory (mebibytes fact.memory);
        }
        // settings
        // {
          Feature = lib.unique ([ role ] ++ lib.toList (settings.Feature or [ ]));
        }
      )
    );
  describeRole = role: settings: map (describeNode role settings) (facts.roles.${role} or [ ]);
in
{
  # interface
  options.nixbench.slurm = {
    membership = mkOption {
      type = types.enum [
        "dynamic"
        "static"
      ];
      default = "dynamic";
      example = "static";
      description = ''
        How the controller gets the list of compute nodes. With `dynamic`, compute nodes register. With `static`,
        slurm.conf contains the list. Set it to the same value on all nodes.
      '';
    };
    staticRoles = mkOption {
      type = types.attrsOf parameters;
      default.compute = { };
      example = {
        compute = { };
        gpu = {
          Gres = "gpu:1";
          Feature = [ "a100" ];
        };
      };
      description = "Roles whose nodes are in the static list, with parameters of their nodes in slurm.conf.";
    };
    staticNodes = mkOption {
      type = types.attrsOf parameters;
      default = { };
      example.big-1 = {
        NodeAddr = "192.168.222.40";
        CPUs = 64;
        RealMemory = 256000;
      };
      description = ''
        Compute nodes in the static list, with their parameters in slurm.conf: other parameters of nodes in
        `staticRoles`, and nodes of the hive that have no role.
      '';
    };
  };

  # implementation
  config = lib.mkIf (cfg.configured && cfg.role == "controller" && cfg.membership == "static") {
    nixbench.slurm.staticNodes = lib.listToAttrs (lib.concatLists (lib.mapAttrsToList describeRole cfg.staticRoles));
    assertions = [
      {
        assertion = cfg.staticNodes != { };
        message = "nixbench.slurm.membership is static, and the facts have no node of the roles in nixbench.slurm.staticRoles; add a compute node, or set membership to dynamic.";
      }
    ];
  };
}
