# `deployment.*`: how a node is reached and what is uploaded to it. Names, types
# and defaults are Colmena's, so that its hives work unchanged.
{
  config,
  lib,
  name,
  ...
}:
let
  inherit (lib) mkOption types;

  # A string that no message shows: the module system quotes the definitions of other
  # types when they conflict or have the wrong type.
  secret = lib.mkOptionType {
    name = "secret";
    description = "string that is not shown";
    check = _: true;
    merge =
      loc: definitions:
      let
        values = map (d: d.value) definitions;
        complain =
          what:
          throw "The option `${lib.showOption loc}' ${what}, in ${lib.concatMapStringsSep " and " (d: "`${toString d.file}'") definitions}. (What it is set to is not shown, since it is secret.)";
      in
      if !lib.all builtins.isString values then
        complain "must be a string"
      else if !lib.all (v: v == lib.head values) values then
        complain "has different values"
      else
        lib.head values;
  };

  key =
    { name, config, ... }:
    {
      options = {
        name = mkOption {
          type = types.str;
          default = name;
          defaultText = lib.literalMD "the key's attribute name";
          description = "File name of the key.";
        };
        text = mkOption {
          type = types.nullOr secret;
          default = null;
          description = "The key itself. One of `text`, `keyFile` and `keyCommand` must be set.";
        };
        keyFile = mkOption {
          type = types.nullOr types.path;
          default = null;
          example = "/run/secrets/database-password";
          apply = value: if value == null then null else toString value;
          description = "File on the deploying machine that holds the key.";
        };
        keyCommand = mkOption {
          type = types.nullOr (types.nonEmptyListOf types.str);
          default = null;
          example = [
            "pass"
            "show"
            "database"
          ];
          description = "Command on the deploying machine that prints the key.";
        };
        destDir = mkOption {
          type = types.path;
          default = "/run/keys";
          description = "Folder on the node that the key goes to.";
        };
        path = mkOption {
          type = types.path;
          default = "${config.destDir}/${config.name}";
          defaultText = lib.literalExpression ''"''${destDir}/''${name}"'';
          internal = true;
          description = "Where the key is on the node.";
        };
        user = mkOption {
          type = types.str;
          default = "root";
          description = "User that owns the key.";
        };
        group = mkOption {
          type = types.str;
          default = "root";
          description = "Group that owns the key.";
        };
        permissions = mkOption {
          type = types.str;
          default = "0600";
          description = "Mode of the key, in octal.";
        };
        uploadAt = mkOption {
          type = types.enum [
            "pre-activation"
            "post-activation"
          ];
          default = "pre-activation";
          description = "Whether the key is there before the new system is activated, or comes after it.";
        };
      };
    };
in
{
  # interface
  options.deployment = {
    targetHost = mkOption {
      type = types.nullOr types.str;
      default = name;
      defaultText = lib.literalMD "the node's name; for nodes of a role, the address of their machine";
      description = "Host to reach over SSH. With null, a named node can be deployed only locally.";
    };
    targetPort = mkOption {
      type = types.nullOr types.ints.unsigned;
      default = null;
      description = "SSH port. By default it is what the SSH configuration says, or 22.";
    };
    targetUser = mkOption {
      type = types.nullOr types.str;
      default = "root";
      description = "User to log in as. With null, the SSH configuration decides.";
    };
    sshOptions = mkOption {
      type = types.listOf types.str;
      default = [ ];
      example = [
        "-o"
        "ConnectTimeout=5"
      ];
      description = "More options, as for the ssh command.";
    };
    privilegeEscalationCommand = mkOption {
      type = types.listOf types.str;
      default = [
        "sudo"
        "-H"
        "--"
      ];
      description = "Command that makes another command run as root, for target users other than root.";
    };
    allowLocalDeployment = mkOption {
      type = types.bool;
      default = false;
      description = "Whether `apply-local` may apply this node to the machine that it runs on.";
    };
    buildOnTarget = mkOption {
      type = types.bool;
      default = false;
      description = "Whether the node builds its own system; the derivations are copied to it.";
    };
    replaceUnknownProfiles = mkOption {
      type = types.bool;
      default = true;
      description = "Whether a system that this hive has not deployed may be replaced.";
    };
    tags = mkOption {
      type = types.listOf types.str;
      default = [ ];
      example = [ "web" ];
      description = "Tags for `--on @tag`.";
    };
    keys = mkOption {
      type = types.attrsOf (types.submodule key);
      default = { };
      description = "Secrets that are uploaded to the node. They never enter the Nix store.";
    };
  };

  # implementation
  config.assertions = lib.mapAttrsToList (
    key: k:
    let
      at = "${name}.deployment.keys.${key}";
    in
    {
      assertion =
        lib.count (value: value != null) [
          k.text
          k.keyFile
          k.keyCommand
        ] == 1;
      message = "Exactly one of `${at}.text`, `${at}.keyFile` and `${at}.keyCommand` must be set.";
    }
  ) config.deployment.keys;
}
