# How a node knows itself. Nodes of a role share one closure, so nothing of a node's
# own is in it: nixbench writes `/var/lib/nixbench/node.json` when it makes a node.
# A named node, which has a closure to itself, may as well say it here.
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
      description = "Role of the node, if it has one.";
    };
    index = mkOption {
      type = types.ints.positive;
      default = 1;
      example = 2;
      description = "Which node of its role it is.";
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
    nodeFile = mkOption {
      type = types.path;
      default = "/var/lib/nixbench/node.json";
      readOnly = true;
      description = "File on the node that says who it is.";
    };
    node = mkOption {
      type = types.nullOr (types.submodule node);
      default = null;
      example = {
        name = "cp";
        address = "192.168.222.11";
      };
      description = ''
        Who this node is. Only for a node with a closure of its own; by default nixbench writes
        the file, which lets nodes share a closure.
      '';
    };
  };

  # implementation
  config = {
    # Modules may be used without nixbench, which always gives this argument.
    _module.args.runtime = lib.mkDefault null;

    systemd.tmpfiles.settings.nixbench-node = lib.mkIf (cfg.node != null) {
      "/var/lib/nixbench".d.mode = "0755";
      ${cfg.nodeFile}."L+".argument = "${(pkgs.formats.json { }).generate "node.json" (
        { version = 1; } // cfg.node
      )}";
    };
  };
}
