# slurmctld, as NixOS runs it. Running jobs do not depend on it: they continue while it restarts.
{
  config,
  lib,
  ...
}:
let
  cfg = config.nixbench.slurm;
  inherit (config.services.slurm) etcSlurm stateSaveLocation;
  scontrol = "${lib.getBin cfg.package}/bin/scontrol";
in
{
  config = lib.mkIf (cfg.configured && cfg.role == "controller") {
    services.slurm.server.enable = true;

    systemd.services.slurmctld = {
      startLimitIntervalSec = 0;
      serviceConfig = {
        Restart = "on-failure";
        RestartSec = 1;
        # Benchmarks read the times of jobs from the log of slurmctld. By default, journald drops messages after the first 10,000 in
        # 30 seconds.
        LogRateLimitIntervalSec = 0;
      };
      # If the configuration has changed, tell the other nodes to fetch it again, because slurmd fetches it only when it starts. A
      # node that does not answer now fetches the configuration at its next start.
      postStart = ''
        sent=${stateSaveLocation}/nixbench-configuration
        before=
        [ ! -e "$sent" ] || before=$(cat "$sent")
        if [ -n "$before" ] && [ "$before" != ${etcSlurm} ]; then
          until SLURM_CONF=${etcSlurm}/slurm.conf timeout 5 ${scontrol} reconfigure; do
            try=$((''${try:-0} + 1))
            if [ "$try" = 5 ]; then
              echo "the nodes were not told to fetch the changed configuration; run: scontrol reconfigure" >&2
              exit 0
            fi
            sleep 1
          done
        fi
        echo ${etcSlurm} > "$sent"
      '';
    };
  };
}
