# services.mysql, with the guest's MariaDB: databases and users without passwords, and one section of my.cnf.
{ config, lib, pkgs, ... }:
let
  inherit (lib) types;
  inherit (import ../../lib/option.nix { inherit lib; }) option required;
  cfg = config.services.mysql;
  server = "--user=${cfg.user} --datadir=${cfg.dataDir} --basedir=${cfg.package}";

  value = v: if builtins.isBool v then lib.boolToString v else toString v;
  configFile = pkgs.writeText "my.cnf" (
    lib.concatStrings (
      lib.mapAttrsToList (
        name: settings:
        "[${name}]\n" + lib.concatStrings (lib.mapAttrsToList (n: v: "${n}=${value v}\n") settings)
      ) cfg.settings
    )
  );
  user = {
    options = {
      name = required types.str "Name of the user, in the database and on the node.";
      ensurePermissions = option (types.attrsOf types.str) { } "Permissions by tables.";
    };
  };
in
{
  options.services.mysql = {
    enable = lib.mkEnableOption "MySQL server";
    package = required types.package "The package with the server.";
    user = option types.str "mysql" "User of the server.";
    group = option types.str "mysql" "Group of the server.";
    dataDir = option types.path "/var/lib/mysql" "Directory of the databases.";
    settings = option (types.attrsOf (types.attrsOf (types.oneOf [ types.bool types.int types.str ]))) { } "Settings of my.cnf by section.";
    ensureDatabases = option (types.listOf types.str) [ ] "Databases to create.";
    ensureUsers = option (types.listOf (types.submodule user)) [ ] "Users to create, whom the server knows by their user on the node.";
  };

  config = lib.mkIf cfg.enable {
    services.mysql.settings.mysqld = {
      datadir = cfg.dataDir;
      port = lib.mkDefault 3306;
    };
    environment.systemPackages = [ cfg.package ];
    environment.etc."my.cnf".source = configFile;

    users.users.mysql = lib.mkIf (cfg.user == "mysql") {
      inherit (cfg) group;
      description = "MySQL server user";
      isSystemUser = true;
      uid = 84;
    };
    users.groups.mysql = lib.mkIf (cfg.group == "mysql") { gid = 84; };

    systemd.tmpfiles.rules = [ "d ${cfg.dataDir} 0755 ${cfg.user} ${cfg.group} - -" ];

    systemd.services.mysql = {
      description = "MySQL Server";
      after = [ "network.target" ];
      wantedBy = [ "multi-user.target" ];
      restartTriggers = [ configFile ];
      path = [ pkgs.hostname ];
      preStart = ''
        if ! test -e ${cfg.dataDir}/mysql; then
          ${cfg.package}/bin/mysql_install_db --defaults-file=/etc/my.cnf ${server}
          touch ${cfg.dataDir}/mysql_init
        fi
      '';
      script = ''
        exec ${cfg.package}/bin/mysqld --defaults-file=/etc/my.cnf ${server}
      '';
      postStart =
        let
          sql = "${cfg.package}/bin/mysql -u ${cfg.user} -N";
        in
        ''
          if [ -f ${cfg.dataDir}/mysql_init ]; then
            {
              echo "CREATE USER IF NOT EXISTS '${cfg.user}'@'localhost' IDENTIFIED WITH unix_socket;"
              echo "GRANT ALL PRIVILEGES ON *.* TO '${cfg.user}'@'localhost' WITH GRANT OPTION;"
            } | ${sql}
            rm ${cfg.dataDir}/mysql_init
          fi
        ''
        + lib.concatMapStrings (database: ''
          echo 'CREATE DATABASE IF NOT EXISTS `${database}`;' | ${sql}
        '') cfg.ensureDatabases
        + lib.concatMapStrings (u: ''
          {
            echo "CREATE USER IF NOT EXISTS '${u.name}'@'localhost' IDENTIFIED WITH unix_socket;"
            ${lib.concatStrings (
              lib.mapAttrsToList (tables: permissions: ''
                echo "GRANT ${permissions} ON ${tables} TO '${u.name}'@'localhost';"
              '') u.ensurePermissions
            )}
          } | ${sql}
        '') cfg.ensureUsers;
      serviceConfig = {
        Type = "notify";
        Restart = "on-abnormal";
        RestartSec = "5s";
        User = cfg.user;
        Group = cfg.group;
        RuntimeDirectory = "mysqld";
        RuntimeDirectoryMode = "0755";
        StateDirectory = lib.mkIf (cfg.dataDir == "/var/lib/mysql") "mysql";
        StateDirectoryMode = "0700";
        NoNewPrivileges = true;
      };
    };
  };
}
