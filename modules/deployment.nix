# The options `deployment.*`: how nixbench connects to a node, and which keys it uploads.
# Names, types and defaults are those of Colmena, so that Colmena's hives work unchanged.
{
  config,
  lib,
  name,
  ...
}:
let
  inherit (lib) mkOption types;

  # A type for secret strings. It replaces types.str, whose error messages about conflicting definitions and wrong types contain
  # the values.
  secret = lib.mkOptionType {
    name = "secret";
    description = "string that is not shown";
    check = _: true;
    merge =
      loc: definitions:
      let
        values = map (d: d.value) definitions;
        refuse =
          reason:
          throw "The option `${lib.showOption loc}' ${reason}, in ${lib.concatMapStringsSep " and " (d: "`${toString d.file}'") definitions}. (Its value is secret and is not shown.)";
      in
      if !lib.all builtins.isString values then
        refuse "must be a string"
      else if !lib.all (v: v == lib.head values) values then
        refuse "has different values"
      else
        lib.head values;
  };

  # The default of the option `part`, by the kind of the generated secret.
  defaultParts = {
    token = "text";
    random = "raw";
    key-ring = "keys";
    key-pair = "private";
    ca = "key";
    curve = "key";
  };

  generated =
    { config, ... }:
    {
      options = {
        secret = mkOption {
          type = types.strMatching "[A-Za-z0-9][A-Za-z0-9_.-]*";
          example = "cluster-ca";
          description = "Name of the secret, unique in the cluster. Keys with the same name of a secret use the same secret, on all nodes.";
        };
        kind = mkOption {
          type = types.enum (builtins.attrNames defaultParts);
          example = "random";
          description = ''
            Kind of the secret: a `token` in the format of kubeadm's bootstrap tokens, `random` bytes, a
            `key-ring` of random keys, which keeps old keys to decrypt older data, a `key-pair` (ECDSA), a
            certificate authority (`ca`), or a key pair of CurveZMQ as `flux keygen` writes it (`curve`).
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
          default = defaultParts.${config.kind};
          defaultText = lib.literalMD "the part that is secret";
          description = ''
            Part of the secret that is uploaded as this key: the `text` of a token; random bytes as `raw` or
            `base64`; the `keys` of a ring, one per line, the key that encrypts first; the `private` or `public`
            half of a key pair; the `certificate` or `key` of an authority; the `key` of CurveZMQ.
          '';
        };
        bytes = mkOption {
          type = types.ints.between 16 1048576;
          default = 32;
          description = "Number of random bytes of the secret, or of each key in a key ring.";
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
          description = "File with the key, on the machine that runs nixbench.";
        };
        keyCommand = mkOption {
          type = types.nullOr (types.nonEmptyListOf types.str);
          default = null;
          example = [
            "pass"
            "show"
            "database"
          ];
          description = "Command that prints the key. It runs on the machine that runs nixbench.";
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
            A secret that nixbench generates, stores in its state folder, and uploads to every node
            that has a key with this secret.
          '';
        };
        destDir = mkOption {
          type = types.path;
          default = "/run/keys";
          description = ''
            Folder on the node for the key. Only root may change the folders above it. The folder itself must belong to root, and only
            root may write to it, or it must belong to `user`.
          '';
        };
        path = mkOption {
          type = types.path;
          default = "${config.destDir}/${config.name}";
          defaultText = lib.literalExpression ''"''${destDir}/''${name}"'';
          internal = true;
          description = "Path of the key on the node.";
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
          description = "Whether the key is uploaded before or after the activation of the new system.";
        };
        restartUnits = mkOption {
          type = types.listOf (types.strMatching "[a-zA-Z0-9:_.@-]+\\.service");
          default = [ ];
          example = [ "munged.service" ];
          description = ''
            Services that read the key only when they start. A switch or an upload restarts those that run and have read
            another key than the one on the disk.
          '';
        };
      };
    };

  healthCheck.options = {
    http = mkOption {
      type = types.nullOr types.str;
      default = null;
      example = "http://127.0.0.1:8080/healthz";
      description = ''
        URL to request. The check passes if the status is 200 to 399; a redirect is not followed. Without a host, as in
        `http://:8080/`, the host is the node. One of `http`, `tcp` and `command` must be set.
      '';
    };
    tcp = mkOption {
      type = types.nullOr types.str;
      default = null;
      example = "127.0.0.1:5432";
      description = "Host and port to connect to. The check passes if the connection is accepted. Without a host, as in `:5432`, the host is the node.";
    };
    command = mkOption {
      type = types.nullOr (types.nonEmptyListOf types.str);
      default = null;
      example = [
        "sh"
        "-c"
        "pg_isready | grep accepting"
      ];
      description = "Command that must end with exit status 0. On the node it runs as root. No shell interprets its arguments.";
    };
    from = mkOption {
      type = types.enum [
        "node"
        "here"
      ];
      default = "node";
      description = ''
        Where the check runs: on the node (`node`), through nixbench's connection to the node, or on the computer that runs nixbench
        (`here`). With `from = "here"`, a command runs as you, and finds the name and the address of the node in `NIXBENCH_NODE` and
        `NIXBENCH_ADDRESS`.
      '';
    };
    timeout = mkOption {
      type = types.ints.between 1 3600;
      default = 30;
      description = "Seconds until the check must have passed. It is repeated until then. A single HTTP request or TCP connection may take 10 seconds.";
    };
    interval = mkOption {
      type = types.ints.between 1 3600;
      default = 1;
      description = "Seconds between two attempts.";
    };
  };
in
{
  # interface
  options.deployment = {
    targetHost = mkOption {
      type = types.nullOr (types.either types.str (types.nonEmptyListOf types.str));
      default = name;
      defaultText = lib.literalMD "the node's name; for nodes of a role, the address of their machine";
      example = [
        "web.lan"
        "web.example.org"
      ];
      description = ''
        Host to connect to with SSH. With null, only `apply-local` can deploy a named node. The hosts of a list
        are tried in order.
      '';
    };
    targetPort = mkOption {
      type = types.nullOr types.ints.unsigned;
      default = null;
      example = 2222;
      description = "SSH port. By default it is the port in the SSH configuration, or 22.";
    };
    targetUser = mkOption {
      type = types.nullOr types.str;
      default = "root";
      description = "User to log in as. With null, it is the user in the SSH configuration.";
    };
    sshOptions = mkOption {
      type = types.listOf types.str;
      default = [ ];
      example = [
        "-o"
        "ConnectTimeout=5"
      ];
      description = "More options, as the ssh command takes them.";
    };
    privilegeEscalationCommand = mkOption {
      type = types.listOf types.str;
      default = [
        "sudo"
        "-H"
        "--"
      ];
      description = "Command that runs another command as root, for target users other than root.";
    };
    allowLocalDeployment = mkOption {
      type = types.bool;
      default = false;
      description = "Whether `apply-local` may deploy this node to the machine on which `apply-local` runs.";
    };
    buildOnTarget = mkOption {
      type = types.bool;
      default = false;
      description = "Whether the node builds its own system. nixbench then copies derivations to the node instead of build results.";
    };
    optional = mkOption {
      type = types.bool;
      default = false;
      example = true;
      description = ''
        Whether the node may be away, such as a laptop. If nothing answers at its hosts when `apply`, `upload-keys`, `plan`,
        `rollback`, `reboot`, `check` or `status` begins, the command leaves it out, lists it at the end, and does not fail. A refused
        login or a wrong host key is an error. The option has no effect on machines that nixbench boots: `apply` starts them.
      '';
    };
    replaceUnknownProfiles = mkOption {
      type = types.bool;
      default = true;
      description = "Whether nixbench may replace a system on the node that was not deployed from this hive.";
    };
    tags = mkOption {
      type = types.listOf types.str;
      default = [ ];
      example = [ "web" ];
      description = "Tags for `--on @tag`.";
    };
    hollow = mkOption {
      type = types.ints.unsigned;
      default = 0;
      internal = true;
      description = "Number of nodes of the cluster that the machine stands for: `hollow` of its role. With 0, it is one node.";
    };
    keys = mkOption {
      type = types.attrsOf (types.submodule key);
      default = { };
      example.database-password.keyFile = "/run/secrets/database-password";
      description = "Secrets that are uploaded to the node. They are never in the Nix store.";
    };
    healthChecks = mkOption {
      type = types.attrsOf (types.submodule healthCheck);
      default = { };
      example.web.http = "http://127.0.0.1:8080/healthz";
      description = ''
        Checks that must pass after a switch, before it is confirmed. If one does not pass in time, the node rolls back. `check`,
        `status --check` and the end of `apply` run them, too.
      '';
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
              description = "Role of the node in the cluster that the engine forms.";
            };
            oneByOne = mkOption {
              type = types.bool;
              default = false;
              example = true;
              description = "Whether only one member with this role may be changed at a time, because all other members need the members with this role.";
            };
            order = mkOption {
              type = types.ints.unsigned;
              default = 0;
              example = 10;
              description = ''
                Place of the role in a rolling update. Members of roles with a lower order are changed first, such
                as a database before the controllers that use it, and these before the nodes that run the work.
              '';
            };
            settings = mkOption {
              type = types.attrsOf types.anything;
              default = { };
              description = "Settings with which the engine checks and changes the cluster. They must not contain secrets.";
            };
          };
        }
      );
      default = null;
      internal = true;
      description = "The engine that the node runs together with other nodes. The engine's modules set this option.";
    };
    client = mkOption {
      type = types.nullOr types.str;
      default = null;
      internal = true;
      example = "kubernetes";
      description = "The engine whose client programs the node has, if jobs can be submitted to it from this node. The engine's modules set this option.";
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
