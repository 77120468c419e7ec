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

  parts = {
    token = "text";
    random = "raw";
    key-ring = "keys";
    key-pair = "private";
    ca = "key";
  };

  generated =
    { config, ... }:
    {
      options = {
        secret = mkOption {
          type = types.strMatching "[A-Za-z0-9][A-Za-z0-9_.-]*";
          example = "cluster-ca";
          description = "Name of the secret in the whole cluster. Keys of several nodes may name one.";
        };
        kind = mkOption {
          type = types.enum (builtins.attrNames parts);
          example = "random";
          description = ''
            What it is: a `token` as kubeadm's bootstrap tokens are, `random` bytes, a `key-ring` of
            random keys, a `key-pair` (ECDSA), or a certificate authority (`ca`). A key ring is for what
            is stored encrypted: it keeps its old keys when it gets another one.
          '';
        };
        part = mkOption {
          type = types.enum [
            "text"
            "raw"
            "base64"
            "keys"
            "private"
            "public"
            "certificate"
            "key"
          ];
          default = parts.${config.kind};
          defaultText = lib.literalMD "the secret one";
          description = ''
            Which part of it this key is: `text` of a token; `raw` or `base64` of random bytes; `keys` of
            a ring, a name and base64 in each line, of which the first is the one to encrypt with;
            `private` or `public` of a key pair; `certificate` or `key` of an authority.
          '';
        };
        bytes = mkOption {
          type = types.ints.between 16 1048576;
          default = 32;
          description = "How many random bytes; of a key ring in each key.";
        };
      };
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
          example = "only-for-tests";
          description = "The key itself. One of `text`, `keyFile`, `keyCommand` and `generated` must be set.";
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
        generated = mkOption {
          type = types.nullOr (types.submodule generated);
          default = null;
          example = {
            secret = "munge";
            kind = "random";
            bytes = 1024;
          };
          description = ''
            A secret that nixbench makes, keeps beside the hive's state, and gives to every node
            that names it.
          '';
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
      example = 2222;
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
      example.database-password.keyFile = "/run/secrets/database-password";
      description = "Secrets that are uploaded to the node. They never enter the Nix store.";
    };
    engine = mkOption {
      type = types.nullOr (
        types.submodule {
          options = {
            kind = mkOption {
              type = types.str;
              example = "kubernetes";
              description = "Name of the engine.";
            };
            role = mkOption {
              type = types.str;
              example = "worker";
              description = "What the node is there.";
            };
            oneByOne = mkOption {
              type = types.bool;
              default = false;
              example = true;
              description = "Whether no two such members may be changed at once, as they hold what all others need.";
            };
            settings = mkOption {
              type = types.attrsOf types.anything;
              default = { };
              description = "What checks and changes of the cluster need to know; nothing secret.";
            };
          };
        }
      );
      default = null;
      internal = true;
      description = "What the node runs together with others. The modules of an engine set it.";
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
          k.generated
        ] == 1;
      message = "Exactly one of `${at}.text`, `${at}.keyFile`, `${at}.keyCommand` and `${at}.generated` must be set.";
    }
  ) config.deployment.keys;
}
