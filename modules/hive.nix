# The options `meta`, `cluster` and `roles` of a hive. The nodes of a hive are not options.
{ lib, ... }:
let
  inherit (lib) mkOption types;

  size = types.strMatching "[1-9][0-9]*[KMGT]" // {
    description = "size such as 512M or 4G";
  };

  # The type of an option for one scheduler of a hive, such as Kubernetes. It has the modules of that scheduler.
  scheduler.options.modules = mkOption {
    type = types.listOf types.raw;
    default = [ ];
    example = lib.literalExpression "[ ./modules/slurm/compute.nix ]";
    description = "NixOS modules that nodes have in addition, if `cluster.scheduler` is the name of this scheduler.";
  };

  role = {
    options = {
      count = mkOption {
        type = types.ints.unsigned;
        default = 1;
        example = 3;
        description = ''
          Number of nodes of this role. They are named after the role: `worker-1`, `worker-2` and so on.
          `cluster.network.cidr` must have an address for each node of all roles.
        '';
      };
      hollow = mkOption {
        type = types.ints.between 0 10000;
        default = 0;
        example = 100;
        description = ''
          Number of nodes of the cluster that each machine of this role stands for, with Kubernetes and SLURM;
          [bench.md](bench.md#many-nodes-on-one-machine). With 0, a machine is one node.
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
        description = "Sizes of additional, empty disks of each machine. Containers cannot have additional disks.";
      };
      cpuPins = mkOption {
        type = types.listOf types.str;
        default = [ ];
        example = [
          "2"
          "4-7"
        ];
        description = ''
          Processors of the hypervisor on which each virtual processor runs, one entry for each, in order. By
          default, it runs on any processor.
        '';
      };
      hypervisors = mkOption {
        type = types.listOf types.str;
        default = [ ];
        example = [ "rack1" ];
        description = ''
          Hypervisors for new machines of this role, by their names in `cluster.hypervisors`. By
          default the machines are spread over all hypervisors. An existing machine stays on its hypervisor.
        '';
      };
      firmware = mkOption {
        type = types.enum [
          "bios"
          "uefi"
        ];
        default = "bios";
        description = "Firmware of a virtual machine.";
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
          libvirt XML that is merged into the XML of each machine. Devices are added. Other elements replace the
          element with the same name.
        '';
      };
      tags = mkOption {
        type = types.listOf types.str;
        default = [ ];
        example = [ "compute" ];
        description = "Tags of the role's nodes, for `--on @tag`. The name of the role is always one of its tags.";
      };
      modules = mkOption {
        type = types.listOf types.raw;
        default = [ ];
        example = lib.literalExpression "[ ./modules/kubernetes/worker.nix ]";
        description = "NixOS modules of the role's nodes, in addition to the hive's `defaults`.";
      };
      schedulers = mkOption {
        type = types.attrsOf (types.submodule scheduler);
        default = { };
        example = lib.literalExpression ''
          {
            kubernetes.modules = [ ./modules/kubernetes/worker.nix ];
            slurm.modules = [ ./modules/slurm/compute.nix ];
          }
        '';
        description = "What the role's nodes are with each scheduler, in addition to `modules`.";
      };
      perNode = mkOption {
        type = types.bool;
        default = false;
        description = ''
          Whether each node has a closure of its own. By default the nodes of a role share one closure, and the
          module argument `name` is the name of the role.
        '';
      };
      image = mkOption {
        type = types.nullOr (types.either types.path types.str);
        default = null;
        example = "/var/lib/images/worker.qcow2";
        description = ''
          Image that the machines boot from: a disk image (qcow2 or raw; for containers a raw file system), or a
          folder with `disk.qcow2` or `disk.raw` and, to boot a kernel directly, `kernel`, `initrd` and `cmdline`.
          By default nixbench builds it from the role's modules.
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
        example = "The production cluster";
        description = "Purpose of the hive, in one line.";
      };
      nixpkgs = mkOption {
        type = types.raw;
        default = null;
        example = lib.literalExpression ''import <nixpkgs> { system = "x86_64-linux"; }'';
        description = ''
          The nixpkgs of all nodes: a path, a function, or a package set; in a flake a package set. Without a
          flake, the default is `<nixpkgs>`.
        '';
      };
      nodeNixpkgs = mkOption {
        type = types.attrsOf types.raw;
        default = { };
        example = lib.literalExpression "{ db = import ./nixpkgs-stable { }; }";
        description = "The nixpkgs of single nodes or roles, by name, instead of `meta.nixpkgs`.";
      };
      specialArgs = mkOption {
        type = types.attrsOf types.raw;
        default = { };
        example = lib.literalExpression "{ inherit inputs; }";
        description = "Additional arguments for all modules.";
      };
      nodeSpecialArgs = mkOption {
        type = types.attrsOf (types.attrsOf types.raw);
        default = { };
        example = lib.literalExpression "{ worker = { zone = \"a\"; }; }";
        description = "Additional arguments for the modules of single nodes or roles, by the name of the node or role.";
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
    # As in Colmena, `meta` is a module: it may be a function and import other modules.
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
      scheduler = mkOption {
        type = types.nullOr types.str;
        default = null;
        example = "kubernetes";
        description = ''
          The scheduler that the cluster runs: one of the names in `cluster.schedulers` and
          `roles.NAME.schedulers`. It must be set if the hive has schedulers. Modules read it as the argument
          `scheduler`.
        '';
      };
      schedulers = mkOption {
        type = types.attrsOf (types.submodule scheduler);
        default = { };
        example = lib.literalExpression "{ slurm.modules = [ ./modules/slurm { nixbench.slurm.controllerRole = \"head\"; } ]; }";
        description = "Settings of all nodes with each scheduler.";
      };
      network = {
        name = mkOption {
          type = types.strMatching "[^/[:cntrl:]]{1,200}";
          default = "nixbench";
          description = "libvirt network of the machines. It is created if it does not exist.";
        };
        cidr = mkOption {
          type = types.str;
          default = "192.168.222.0/24";
          description = "Address range of the network.";
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
            nixbench creates `nat` and `isolated` networks; with `nat`, machines reach other networks. It does not
            change an `existing` libvirt network or a `bridge`, where another DHCP server assigns addresses, and
            discovers the addresses.
          '';
        };
        bridge = mkOption {
          type = types.nullOr (types.strMatching "[^/:[:space:]]{1,15}");
          default = null;
          example = "br0";
          description = "Bridge of the hypervisor that machines use, with `mode = \"bridge\"`.";
        };
        domain = mkOption {
          type = types.strMatching "[a-z0-9]([a-z0-9-]*[a-z0-9])?([.][a-z0-9]([a-z0-9-]*[a-z0-9])?)*";
          default = "internal";
          description = "DNS domain of the nodes' names. Only networks that nixbench creates have it.";
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
                description = "Role whose first node's address is the address of the API.";
              };
              address = mkOption {
                type = types.nullOr types.str;
                default = null;
                example = "192.168.222.5";
                description = "A virtual address of the API, instead of a node's address.";
              };
              port = mkOption {
                type = types.nullOr types.port;
                default = null;
                example = 6443;
                description = "Port of the API. With null, it is the default port of the engine of the hive's nodes, if that has one.";
              };
            };
          }
        );
        default = null;
        example.role = "control-plane";
        description = "Address of the cluster's API; modules read it as `runtime.endpoint`.";
      };
      hypervisors = mkOption {
        type = types.attrsOf (
          types.submodule {
            options.kind = mkOption {
              type = types.str;
              default = "libvirt";
              description = "Program that runs the machines. This nixbench has only `libvirt`.";
            };
            options.uri = mkOption {
              type = types.str;
              example = "qemu+ssh://root@host/system";
              description = "libvirt URI of the hypervisor. With `lxc:///system`, the machines are containers.";
            };
            options.pool = mkOption {
              type = types.str;
              default = "nixbench";
              description = "libvirt storage pool for images and disks. It is created if it does not exist.";
            };
            options.poolPath = mkOption {
              type = types.str;
              default = "/var/lib/libvirt/nixbench";
              description = "Folder on the hypervisor for the pool, if nixbench creates the pool.";
            };
          }
        );
        default.default.uri = "qemu:///system";
        description = "Hypervisors on which machines run. Machines are spread over all hypervisors.";
      };
    };
  };
}
