# Users and groups, made on the guest with its own tools where they are missing.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib) mkOption types;
  cfg = config.users;

  keysType = types.listOf types.singleLineStr;

  userOptions =
    { name, config, ... }:
    {
      options = {
        enable = mkOption {
          type = types.bool;
          default = true;
          description = "Whether the user exists.";
        };
        name = mkOption {
          type = types.passwdEntry types.str;
          default = name;
          description = "Login name.";
        };
        description = mkOption {
          type = types.passwdEntry types.str;
          default = "";
          example = "Alice Q. User";
          description = "Full name.";
        };
        uid = mkOption {
          type = types.nullOr types.int;
          default = null;
          description = "User ID; null takes a free one.";
        };
        isSystemUser = mkOption {
          type = types.bool;
          default = false;
          description = "Whether this is a service's user.";
        };
        isNormalUser = mkOption {
          type = types.bool;
          default = false;
          description = "Whether this is a person's user.";
        };
        group = mkOption {
          type = types.str;
          default = "";
          description = "Primary group.";
        };
        extraGroups = mkOption {
          type = types.listOf types.str;
          default = [ ];
          description = "Other groups.";
        };
        home = mkOption {
          type = types.passwdEntry types.path;
          default = "/var/empty";
          description = "Home directory.";
        };
        homeMode = mkOption {
          type = types.strMatching "[0-7]{1,5}";
          default = "700";
          description = "Mode of a new home directory.";
        };
        createHome = mkOption {
          type = types.bool;
          default = false;
          description = "Whether to create the home directory.";
        };
        shell = mkOption {
          type = types.nullOr (types.either types.shellPackage (types.passwdEntry types.path));
          default = "/usr/sbin/nologin";
          defaultText = "no login";
          description = "Login shell.";
        };
        useDefaultShell = mkOption {
          type = types.bool;
          default = false;
          description = "Whether the shell is users.defaultUserShell.";
        };
        linger = mkOption {
          type = types.bool;
          default = false;
          description = "Whether the user's services outlive a session.";
        };
        packages = mkOption {
          type = types.listOf types.package;
          default = [ ];
          description = "The user's own packages; everyone sees them here.";
        };
        password = mkOption {
          type = types.nullOr types.str;
          default = null;
          description = "Password in the clear, readable by everyone in the store.";
        };
        initialPassword = mkOption {
          type = types.nullOr types.str;
          default = null;
          description = "Password of a new user, readable by everyone in the store.";
        };
        hashedPassword = mkOption {
          type = types.nullOr (types.passwdEntry types.str);
          default = null;
          description = "Hashed password.";
        };
        initialHashedPassword = mkOption {
          type = types.nullOr (types.passwdEntry types.str);
          default = null;
          description = "Hashed password of a new user.";
        };
        hashedPasswordFile = mkOption {
          type = types.nullOr types.str;
          default = null;
          description = "File on the node that holds the hashed password.";
        };
        openssh.authorizedKeys = {
          keys = mkOption {
            type = keysType;
            default = [ ];
            description = "Public keys that may log in.";
          };
          keyFiles = mkOption {
            type = types.listOf types.path;
            default = [ ];
            description = "Files of public keys that may log in.";
          };
        };
      };

      config = lib.mkMerge [
        (lib.mkIf config.isNormalUser {
          group = lib.mkDefault "users";
          createHome = lib.mkDefault true;
          home = lib.mkDefault "/home/${config.name}";
          useDefaultShell = lib.mkDefault true;
        })
        (lib.mkIf config.useDefaultShell { shell = lib.mkDefault cfg.defaultUserShell; })
      ];
    };

  groupOptions =
    { name, ... }:
    {
      options = {
        name = mkOption {
          type = types.passwdEntry types.str;
          default = name;
          description = "The group's name.";
        };
        gid = mkOption {
          type = types.nullOr types.int;
          default = null;
          description = "Group ID; null takes a free one.";
        };
        members = mkOption {
          type = types.listOf (types.passwdEntry types.str);
          default = [ ];
          description = "Users in the group, besides those who say so.";
        };
      };
    };

  users = lib.filter (u: u.enable) (lib.attrValues cfg.users);
  shellPath =
    u:
    if u.shell == null then
      "/usr/sbin/nologin"
    else if u.shell ? shellPath then
      # The guest's /etc/shells knows its own shells, not the store's.
      u.shell.shellPath
    else
      toString u.shell;
  arg = lib.escapeShellArg;

  membersOf =
    g: lib.unique (g.members ++ map (u: u.name) (lib.filter (u: lib.elem g.name u.extraGroups) users));

  makeGroup = g: ''
    getent group ${arg g.name} >/dev/null ||
      groupadd ${lib.optionalString (g.gid != null) "--gid ${toString g.gid}"} --system ${arg g.name}
  '';
  joinGroup = g: lib.concatMapStrings (u: ''
    id -nG ${arg u} | tr ' ' '\n' | grep -qxF ${arg g.name} || usermod -aG ${arg g.name} ${arg u}
  '') (membersOf g);

  makeUser =
    u:
    let
      common = lib.concatStringsSep " " (
        lib.optional (u.uid != null) "--uid ${toString u.uid}"
        ++ [
          "--gid ${arg u.group}"
          "--shell ${arg (shellPath u)}"
          "--comment ${arg u.description}"
        ]
      );
      hashed = if u.hashedPassword != null then u.hashedPassword else u.initialHashedPassword;
      clear = if u.password != null then u.password else u.initialPassword;
    in
    if u.name == "root" then
      ""
    else
      ''
        if getent passwd ${arg u.name} >/dev/null; then
          usermod ${common} ${arg u.name}
        else
          useradd --no-log-init --no-create-home --no-user-group ${lib.optionalString u.isSystemUser "--system"} \
            --home-dir ${arg u.home} ${common} ${arg u.name}
          ${lib.optionalString (hashed != null) "printf '%s:%s\\n' ${arg u.name} ${arg hashed} | chpasswd -e"}
          ${lib.optionalString (hashed == null && clear != null) "printf '%s:%s\\n' ${arg u.name} ${arg clear} | chpasswd"}
        fi
      ''
      + lib.optionalString u.createHome ''
        if [ ! -d ${arg u.home} ]; then
          mkdir -p -m ${u.homeMode} ${arg u.home}
          chown ${arg u.name}:${arg u.group} ${arg u.home}
        fi
      '';
in
{
  options.users = {
    mutableUsers = mkOption {
      type = types.bool;
      default = true;
      description = "Whether users made by hand stay; here they always do.";
    };
    defaultUserShell = mkOption {
      type = types.either types.path types.shellPackage;
      default = pkgs.bash;
      defaultText = lib.literalExpression "pkgs.bash";
      description = "Shell of people.";
    };
    users = mkOption {
      type = types.attrsOf (types.submodule userOptions);
      default = { };
      example = lib.literalExpression "{ alice = { isNormalUser = true; }; }";
      description = "Users.";
    };
    groups = mkOption {
      type = types.attrsOf (types.submodule groupOptions);
      default = { };
      example = lib.literalExpression "{ hackers = { }; }";
      description = "Groups.";
    };
  };

  config = {
    users.users.root = {
      uid = 0;
      group = "root";
      home = lib.mkDefault "/root";
      shell = lib.mkDefault cfg.defaultUserShell;
    };
    users.groups = lib.genAttrs [ "root" "users" "wheel" "nogroup" ] (_: { });

    assertions = lib.concatMap (u: [
      {
        assertion = u.name == "root" || u.isSystemUser != u.isNormalUser;
        message = "Exactly one of users.users.${u.name}.isSystemUser and users.users.${u.name}.isNormalUser must be set.\n";
      }
      {
        assertion = u.group != "";
        message = ''
          users.users.${u.name}.group is unset. This used to default to
          nogroup, but this is unsafe. For example you can create a group
          for this user with:
          users.users.${u.name}.group = "${u.name}";
          users.groups.${u.name} = {};
        '';
      }
    ]) users;

    environment.systemPackages = lib.concatMap (u: u.packages) users;

    environment.etc = lib.listToAttrs (
      lib.concatMap (
        u:
        let
          auth = u.openssh.authorizedKeys;
        in
        lib.optional (auth.keys != [ ] || auth.keyFiles != [ ]) {
          name = "ssh/authorized_keys.d/${u.name}";
          value = {
            # sshd refuses a file that others could have written, links included.
            mode = "0444";
            text = lib.concatMapStrings (k: k + "\n") (
              auth.keys ++ map lib.fileContents auth.keyFiles
            );
          };
        }
      ) users
    );

    system.activationScripts = {
      users = {
        deps = [ "groups" ];
        text =
          lib.concatMapStrings makeUser users
          + lib.concatMapStrings joinGroup (lib.attrValues cfg.groups);
      };
      groups.text = lib.concatMapStrings makeGroup (lib.attrValues cfg.groups);
    };
  };
}
