# Users and groups: the guest's own tools create those that are missing.
{ config, lib, pkgs, ... }:
let
  inherit (lib) types;
  inherit (import ../../lib/option.nix { inherit lib; }) option;
  cfg = config.users;

  keysType = types.listOf types.singleLineStr;

  userOptions =
    { name, config, ... }:
    {
      options = {
        enable = option types.bool true "Whether the user exists.";
        name = option (types.passwdEntry types.str) name "Login name.";
        description = option (types.passwdEntry types.str) "" "Full name.";
        uid = option (types.nullOr types.int) null "User ID; null takes a free one.";
        isSystemUser = option types.bool false "Whether this is a service's user.";
        isNormalUser = option types.bool false "Whether this is a person's user.";
        group = option types.str "" "Primary group.";
        extraGroups = option (types.listOf types.str) [ ] "Other groups.";
        home = option (types.passwdEntry types.path) "/var/empty" "Home directory.";
        homeMode = option (types.strMatching "[0-7]{1,5}") "700" "Mode of a new home directory.";
        createHome = option types.bool false "Whether to create the home directory.";
        shell =
          option (types.nullOr (types.either types.shellPackage (types.passwdEntry types.path))) "/usr/sbin/nologin"
            "Login shell.";
        useDefaultShell = option types.bool false "Whether the shell is users.defaultUserShell.";
        linger = option types.bool false "Whether the user's services outlive a session.";
        packages = option (types.listOf types.package) [ ] "The user's own packages; everyone sees them here.";
        password =
          option (types.nullOr types.str) null
            "Password in the clear, readable by everyone in the store.";
        initialPassword =
          option (types.nullOr types.str) null
            "Password of a new user, readable by everyone in the store.";
        hashedPassword = option (types.nullOr (types.passwdEntry types.str)) null "Hashed password.";
        initialHashedPassword =
          option (types.nullOr (types.passwdEntry types.str)) null
            "Hashed password of a new user.";
        hashedPasswordFile =
          option (types.nullOr types.str) null
            "File on the node that holds the hashed password.";
        openssh.authorizedKeys = {
          keys = option keysType [ ] "Public keys that may log in.";
          keyFiles = option (types.listOf types.path) [ ] "Files of public keys that may log in.";
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
        name = option (types.passwdEntry types.str) name "The group's name.";
        gid = option (types.nullOr types.int) null "Group ID; null takes a free one.";
        members =
          option (types.listOf (types.passwdEntry types.str)) [ ]
            "Users in the group, besides those who say so.";
      };
    };

  users = lib.filter (u: u.enable) (lib.attrValues cfg.users);
  shellPath =
    u:
    if u.shell == null then
      "/usr/sbin/nologin"
    else if u.shell ? shellPath then
      # The guest's /etc/shells has only Debian's shells, not those of the store.
      u.shell.shellPath
    else
      toString u.shell;
  arg = lib.escapeShellArg;

  membersOf =
    g: lib.unique (g.members ++ map (u: u.name) (lib.filter (u: lib.elem g.name u.extraGroups) users));

  # What /etc/passwd and /etc/group say, without a program for each user.
  accounts = ''
    declare -A gidOf=() membersOf=() entryOf=()
    while IFS=: read -r name _ gid members; do
      gidOf[$name]=$gid membersOf[$name]=,$members,
    done </etc/group
    while IFS=: read -r name _ uid gid comment _ shell; do
      entryOf[$name]=$uid:$gid:$comment:$shell
    done </etc/passwd
  '';
  makeGroup = g: ''
    [ -n "''${gidOf[${arg g.name}]:-}" ] ||
      groupadd ${lib.optionalString (g.gid != null) "--gid ${toString g.gid}"} --system ${arg g.name}
  '';
  joinGroup = g: lib.concatMapStrings (u: ''
    case ''${membersOf[${arg g.name}]:-} in
    *,${arg u},*) ;;
    *) usermod -aG ${arg g.name} ${arg u} ;;
    esac
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
        entry=''${entryOf[${arg u.name}]:-}
        if [ -n "$entry" ]; then
          uid=${if u.uid != null then toString u.uid else "\${entry%%:*}"}
          [ "$entry" = "$uid:''${gidOf[${arg u.group}]:-}":${arg u.description}:${arg (shellPath u)} ] ||
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
    mutableUsers = option types.bool true "Whether users made by hand stay; here they always do.";
    defaultUserShell = option (types.either types.path types.shellPackage) pkgs.bash "Shell of people.";
    users = option (types.attrsOf (types.submodule userOptions)) { } "Users.";
    groups = option (types.attrsOf (types.submodule groupOptions)) { } "Groups.";
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
        message = "Exactly one of users.users.${u.name}.isSystemUser and users.users.${u.name}.isNormalUser must be set.";
      }
      {
        assertion = u.group != "";
        message = "users.users.${u.name}.group is unset: name a group, one of its own or `users`.";
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
            # sshd rejects files and links that other users could write.
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
          accounts
          + lib.concatMapStrings makeUser users
          + lib.concatMapStrings joinGroup (lib.attrValues cfg.groups);
      };
      groups.text = accounts + lib.concatMapStrings makeGroup (lib.attrValues cfg.groups);
    };
  };
}
