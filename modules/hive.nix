# The options of a hive beside its nodes: `meta`, `cluster` and `roles`.
{ lib, ... }:
let
  inherit (lib) mkOption types;

  size = types.strMatching "[1-9][0-9]*[KMGT]" // {
    description = "size such as 512M or 4G";
  };

  role = {
    options = {
      count = mkOption {
        type = types.ints.unsigned;
        default = 1;
        example = 3;
        description = "How many nodes this role has. They are called after the role: `worker-1`, `worker-2`, …";
      };
      vcpus = mkOption {
        type = types.ints.positive;
        default = 2;
        description = "Virtual processors of each machine.";
      };
      memory = mkOption {
        type = size;
        default = "2G";
        example = "4G";
        description = "Memory of each machine.";
      };
      disk = mkOption {
        type = size;
        default = "20G";
        description = "Size of each machine's root disk.";
      };
      tags = mkOption {
        type = types.listOf types.str;
        default = [ ];
        example = [ "compute" ];
        description = "Tags of the role's nodes, for `--on @tag`; the role's name is always one of them.";
      };
      modules = mkOption {
        type = types.listOf types.raw;
        default = [ ];
        example = lib.literalExpression "[ ./modules/kubernetes/worker.nix ]";
        description = "NixOS modules of the role's nodes, on top of the hive's `defaults`.";
      };
      perNode = mkOption {
        type = types.bool;
        default = false;
        description = ''
          Whether each node gets a closure of its own. By default the nodes of a
          role share one closure, evaluated and built once, and learn who they are
          at run time; `name` is then the role's name.
        '';
      };
      image = mkOption {
        type = types.nullOr (types.either types.path types.str);
        default = null;
        example = "/var/lib/images/worker.qcow2";
        description = "Disk image or root filesystem to boot. By default it is built from the role's modules.";
      };
    };
  };

  meta = {
    options = {
      name = mkOption {
        type = types.str;
        default = "hive";
        example = "production";
        description = "Name of the hive.";
      };
      description = mkOption {
        type = types.str;
        default = "";
        description = "What the hive is for, in a line.";
      };
      nixpkgs = mkOption {
        type = types.raw;
        default = null;
        example = lib.literalExpression ''import <nixpkgs> { system = "x86_64-linux"; }'';
        description = ''
          The nixpkgs of all nodes: a path, a function, or a package set. In a
          flake it must be a package set; elsewhere it defaults to `<nixpkgs>`.
        '';
      };
      nodeNixpkgs = mkOption {
        type = types.attrsOf types.raw;
        default = { };
        description = "Other nixpkgs for some nodes, or for a role.";
      };
      specialArgs = mkOption {
        type = types.attrsOf types.raw;
        default = { };
        example = lib.literalExpression "{ inherit inputs; }";
        description = "More arguments for all modules.";
      };
      nodeSpecialArgs = mkOption {
        type = types.attrsOf (types.attrsOf types.raw);
        default = { };
        description = "More arguments for the modules of some nodes, or of a role.";
      };
      machinesFile = mkOption {
        type = types.nullOr types.path;
        default = null;
        apply = value: if value == null then null else toString value;
        description = "File that lists the remote builders of this hive, in the format of /etc/nix/machines.";
      };
      allowApplyAll = mkOption {
        type = types.bool;
        default = true;
        description = "Whether `apply` may run without `--on`.";
      };
    };
  };
in
{
  # interface
  options = {
    # A module, as in Colmena: it may be a function and import others.
    meta = mkOption {
      type = types.submoduleWith { modules = [ meta ]; };
      default = { };
      description = "Options of the hive itself.";
    };

    roles = mkOption {
      type = types.attrsOf (types.submodule role);
      default = { };
      description = "Templates of nodes, each with a count.";
    };

    cluster = {
      name = mkOption {
        type = types.nullOr (types.strMatching "[A-Za-z0-9][A-Za-z0-9_.-]*");
        default = null;
        description = "Name of the cluster, for its machines and its state. By default it is `meta.name`.";
      };
      network = {
        name = mkOption {
          type = types.str;
          default = "nixbench";
          description = "libvirt network of the machines; it is made if it is absent.";
        };
        cidr = mkOption {
          type = types.str;
          default = "192.168.222.0/24";
          description = "Address range of that network.";
        };
        mode = mkOption {
          type = types.enum [
            "nat"
            "isolated"
          ];
          default = "nat";
          description = "Whether machines reach the world through the hypervisor.";
        };
      };
      hypervisors = mkOption {
        type = types.attrsOf (
          types.submodule {
            options.uri = mkOption {
              type = types.str;
              example = "qemu+ssh://root@host/system";
              description = "libvirt URI of the hypervisor.";
            };
          }
        );
        default.default.uri = "qemu:///system";
        description = "Where machines run; with several, nodes are spread over them.";
      };
    };
  };
}
