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
        description = ''
          How many nodes this role has. They are called after the role: `worker-1`, `worker-2` and so on.
          All roles together have at most as many as `cluster.network.cidr` has room for.
        '';
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
      disks = mkOption {
        type = types.listOf size;
        default = [ ];
        example = [ "100G" ];
        description = "Sizes of further, empty disks of each machine. Containers have none.";
      };
      cpuPins = mkOption {
        type = types.listOf types.str;
        default = [ ];
        example = [
          "2"
          "4-7"
        ];
        description = ''
          Processors of the hypervisor on which each virtual processor runs, in order.
          Measurements need it; by default they run anywhere.
        '';
      };
      hypervisors = mkOption {
        type = types.listOf types.str;
        default = [ ];
        example = [ "rack1" ];
        description = ''
          Names in `cluster.hypervisors` of those that new machines of this role may be on; by
          default they are spread over all. A machine that is elsewhere stays there.
        '';
      };
      firmware = mkOption {
        type = types.enum [
          "bios"
          "uefi"
        ];
        default = "bios";
        description = "What a virtual machine starts with.";
      };
      identity = mkOption {
        type = types.enum [
          "auto"
          "credentials"
          "cloud-init"
          "files"
        ];
        default = "auto";
        description = ''
          How a machine learns at its first boot who it is: from systemd's credentials, from
          a NoCloud seed for images with cloud-init, or, in a container, from files. `auto`
          is files for containers and credentials for virtual machines.
        '';
      };
      init = mkOption {
        type = types.str;
        default = "/sbin/init";
        description = "First process of a container.";
      };
      xml = mkOption {
        type = types.lines;
        default = "";
        example = "<domain><devices><watchdog model='i6300esb'/></devices></domain>";
        description = ''
          libvirt XML that is merged into each machine's: what is in `<devices>` and
          `<features>` is added, anything else replaces what nixbench says.
        '';
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
        description = ''
          What machines boot from, by default built from the role's modules: a disk image
          (qcow2 or raw; for containers a raw file system), or a folder with one file
          `disk.qcow2` or `disk.raw` and, to boot a kernel directly, `kernel`, `initrd` and `cmdline`.
        '';
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
        example = "The cluster that customers see";
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
        example = lib.literalExpression "{ db = import ./nixpkgs-stable { }; }";
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
        example = lib.literalExpression "{ worker = { zone = \"a\"; }; }";
        description = "More arguments for the modules of some nodes, or of a role.";
      };
      machinesFile = mkOption {
        type = types.nullOr types.path;
        default = null;
        example = "/etc/nix/machines";
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
      example = lib.literalExpression "{ name = \"production\"; nixpkgs = import <nixpkgs> { }; }";
      description = "Options of the hive itself.";
    };

    roles = mkOption {
      type = types.attrsOf (types.submodule role);
      default = { };
      example = lib.literalExpression "{ worker = { count = 3; modules = [ ./worker.nix ]; }; }";
      description = "Templates of nodes, each with a count.";
    };

    cluster = {
      name = mkOption {
        type = types.nullOr (types.strMatching "[A-Za-z0-9][A-Za-z0-9_.-]*");
        default = null;
        example = "production";
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
            "existing"
            "bridge"
          ];
          default = "nat";
          description = ''
            `nat` and `isolated` networks are nixbench's own; with `nat` machines reach the
            world through the hypervisor. An `existing` libvirt network, or a `bridge` of the
            hypervisor, is left as it is: machines get their addresses from whoever
            hands them out there, and nixbench finds them out.
          '';
        };
        bridge = mkOption {
          type = types.nullOr types.str;
          default = null;
          example = "br0";
          description = "Bridge of the hypervisor, with `mode = \"bridge\"`.";
        };
        domain = mkOption {
          type = types.strMatching "[a-z0-9]([a-z0-9.-]*[a-z0-9])?";
          default = "internal";
          description = "Domain in which the network knows nodes by name; for networks that are nixbench's own.";
        };
      };
      endpoint = mkOption {
        type = types.nullOr (
          types.submodule {
            options = {
              role = mkOption {
                type = types.nullOr types.str;
                default = null;
                example = "control-plane";
                description = "The address is the one of this role's first node.";
              };
              address = mkOption {
                type = types.nullOr types.str;
                default = null;
                example = "192.168.222.5";
                description = "A virtual address, instead of a node's.";
              };
              port = mkOption {
                type = types.port;
                default = 6443;
                description = "Port of the API.";
              };
            };
          }
        );
        default = null;
        example.role = "control-plane";
        description = "Where the cluster's API is; modules read it as `runtime.endpoint`.";
      };
      hypervisors = mkOption {
        type = types.attrsOf (
          types.submodule {
            options.uri = mkOption {
              type = types.str;
              example = "qemu+ssh://root@host/system";
              description = "libvirt URI of the hypervisor; `lxc://` gives containers.";
            };
            options.pool = mkOption {
              type = types.str;
              default = "nixbench";
              description = "libvirt storage pool for images and disks; it is made if it is absent.";
            };
            options.poolPath = mkOption {
              type = types.str;
              default = "/var/lib/libvirt/nixbench";
              description = "Folder of the hypervisor for that pool, where it is made.";
            };
          }
        );
        default.default.uri = "qemu:///system";
        description = "Where machines run; with several, nodes are spread over them.";
      };
    };
  };
}
