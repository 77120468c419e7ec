# The identity of a node: its name, role and address. All nodes of a role share one system, so the system cannot contain the
# identity of a node. Instead, nixbench writes the identity to `/var/lib/nixbench/node.json` when it creates a node. A node that
# the hive defines by its own name has a system of its own, so an option can set its identity.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib) mkOption types;
  cfg = config.nixbench;

  node.options = {
    cluster = mkOption {
      type = types.str;
      default = "";
      example = "production";
      description = "Name of the cluster.";
    };
    name = mkOption {
      type = types.strMatching "[a-z0-9]([-a-z0-9.]*[a-z0-9])?";
      example = "cp";
      description = "Name of the node.";
    };
    role = mkOption {
      type = types.str;
      default = "";
      example = "control-plane";
      description = "Role of the node, or an empty string for a named node.";
    };
    index = mkOption {
      type = types.ints.positive;
      default = 1;
      example = 2;
      description = "Number of the node in its role, from 1.";
    };
    address = mkOption {
      type = types.str;
      example = "192.168.222.11";
      description = "Address of the node in the node network.";
    };
  };
in
{
  # interface
  options.nixbench = {
    modulesFolder = mkOption {
      type = types.str;
      default = toString ./.;
      internal = true;
      readOnly = true;
      description = "Folder of these modules, so that nixbench can compare them with its own.";
    };
    nodeFile = mkOption {
      type = types.path;
      default = "/var/lib/nixbench/node.json";
      readOnly = true;
      description = "File with its identity: name, role and address.";
    };
    node = mkOption {
      type = types.nullOr (types.submodule node);
      default = null;
      example = {
        name = "cp";
        address = "192.168.222.11";
      };
      description = ''
        Identity of the node. Set this option only for a node with a closure of its own. By default nixbench
        writes `nodeFile`.
      '';
    };
  };

  # implementation
  config = {
    # This default is for hosts that use the modules without nixbench. nixbench always passes this argument.
    _module.args.runtime = lib.mkDefault null;

    systemd.tmpfiles.settings.nixbench-node = lib.mkIf (cfg.node != null) {
      "/var/lib/nixbench".d.mode = "0755";
      ${cfg.nodeFile}."L+".argument = "${(pkgs.formats.json { }).generate "node.json" (
        { version = 1; } // cfg.node
      )}";
    };
  };
}
