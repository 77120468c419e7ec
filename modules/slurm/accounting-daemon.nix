# slurmdbd and its database, MariaDB, on the same node. slurmdbd logs in to the database by the name of its user (unix_socket),
# so there is no password. Compute nodes do not depend on accounting.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  cfg = config.nixbench.slurm;
  inherit (config.services.slurm) stateSaveLocation;
  enabled = cfg.accounting.name != null && cfg.accounting.address != null;
  onController = cfg.role == "controller" && cfg.accountingRole == cfg.controllerRole;
  database = "slurm_acct_db";

  # The path of a file that contains the address of the slurmdbd from which the cluster has its id.
  adopted = "${stateSaveLocation}/nixbench-accounting";

  # A program that waits until a TCP port answers, for at most as many seconds as its second argument.
  awaitPort = pkgs.writeShellScript "nixbench-await-slurmdbd" ''
    PATH=${lib.makeBinPath [ pkgs.coreutils ]}:$PATH
    end=$(($(date +%s) + $2))
    until timeout 1 ${pkgs.runtimeShell} -c "exec 3<> /dev/tcp/$1/6819" 2> /dev/null; do
      [ "$(date +%s)" -lt "$end" ] || exit 1
      sleep 0.2
    done
  '';
in
{
  config = lib.mkIf cfg.configured (
    lib.mkMerge [
      (lib.mkIf (cfg.role == "controller" && !enabled) {
        systemd.services.slurmctld.preStart = lib.mkAfter "rm -f ${adopted}";
      })
      (lib.mkIf (enabled && (cfg.role == "accounting" || onController)) {
        services.slurm.dbdserver = {
          enable = true;
          dbdHost = cfg.accounting.name;
          extraConfig = ''
            DbdAddr=${cfg.accounting.address}
            StorageHost=localhost
            StorageLoc=${database}
          '';
        };
        services.mysql = {
          enable = true;
          package = lib.mkDefault pkgs.mariadb;
          ensureDatabases = [ database ];
          ensureUsers = [
            {
              name = config.services.slurm.user;
              ensurePermissions."${database}.*" = "ALL PRIVILEGES";
            }
          ];
          settings.mysqld = {
            # The database needs no TCP port: only slurmdbd uses it, by its socket.
            skip-networking = lib.mkDefault true;
            # slurmdbd warns about smaller values.
            innodb_buffer_pool_size = lib.mkDefault "128M";
            innodb_lock_wait_timeout = lib.mkDefault 900;
          };
        };
        systemd.services.slurmdbd = {
          startLimitIntervalSec = 0;
          # The systemd units that are ordered after slurmdbd start when slurmdbd answers. After an upgrade, slurmdbd first
          # converts its database, which may take long and must not be interrupted.
          postStart = ''
            ${awaitPort} 127.0.0.1 60 || echo "slurmdbd does not answer after 60 s; it may be converting its database" >&2
          '';
          serviceConfig = {
            Restart = "on-failure";
            RestartSec = 1;
          };
        };
      })
      (lib.mkIf (enabled && cfg.role == "controller") {
        nixbench.slurm.settings = {
          AccountingStorageType = "accounting_storage/slurmdbd";
          AccountingStorageHost = cfg.accounting.address;
        };
        systemd.services.slurmctld = {
          after = lib.mkIf onController [ "slurmdbd.service" ];
          wants = lib.mkIf onController [ "slurmdbd.service" ];
          # Wait for slurmdbd with a time limit, because slurmctld also starts without slurmdbd if it knows the id of the cluster.
          #
          # A controller that ran without accounting has made up a cluster id itself. slurmdbd makes up another id, and slurmctld
          # then fails with "CLUSTER ID MISMATCH". So the file with the old id is removed once, when accounting has been turned on
          # or slurmdbd has moved to another node. slurmdbd then gives slurmctld an id. After that the file stays, because it
          # protects the state of slurmctld from the database of another cluster.
          preStart = lib.mkAfter ''
            if ! ${awaitPort} ${cfg.accounting.address} 30; then
              echo "slurmdbd of ${cfg.accounting.name} does not answer at ${cfg.accounting.address}, port 6819" >&2
            elif [ "$(cat ${adopted} 2> /dev/null || :)" != ${cfg.accounting.address} ]; then
              # The file clustername contains the name of the cluster and the id, such as bench|1155
              case $(cat ${stateSaveLocation}/clustername 2> /dev/null || :) in
                ${cfg.clusterName} | ${cfg.clusterName}"|"*)
                  echo "accounting is new: slurmctld takes the id of the cluster from slurmdbd"
                  rm ${stateSaveLocation}/clustername
                  ;;
              esac
              echo ${cfg.accounting.address} > ${adopted}
            fi
          '';
        };
      })
    ]
  );
}
