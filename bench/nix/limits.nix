# Settings of the nodes of a configuration with the level limits = "tuned", which lift the limits of schedulers for short jobs.
# Their priority is higher than that of mkDefault, which modules/kubernetes uses for the controller manager, and lower than that of a plain
# definition. So the values of a hive or of a level win over the values here.
{ lib, options, ... }:
let
  high = lib.mkOverride 900;
  # Kubernetes' schedulers and controller manager may send as many requests per second as in scheduler_perf, the benchmark of Kubernetes
  # itself. An API server on one computer answers fewer requests, so these settings limit nothing.
  extraArgs = {
    kube-api-qps = high 5000;
    kube-api-burst = high 5000;
  };
in
{
  config = lib.mkMerge [
    (lib.optionalAttrs (options ? nixbench.kubernetes.scheduler) {
      nixbench.kubernetes = {
        scheduler = { inherit extraArgs; };
        controllerManager = { inherit extraArgs; };
        schedulerDefaults.clientConnection = {
          qps = 5000;
          burst = 5000;
        };
      };
    })
    (lib.optionalAttrs (options ? nixbench.slurm.settings) {
      # slurmctld waits three seconds by default after a job was submitted or has ended before it looks for jobs to start. With 0 it
      # looks in the next turn of its loop, which runs once a second.
      nixbench.slurm.schedulerParameters.batch_sched_delay = high 0;
      nixbench.slurm.settings = {
        # With an epilog, slurmd reports when a node is free again, and slurmctld starts the next job at once. Without an epilog, slurmd
        # does not report the end of a job that ended by itself, and the next job waits for the loop of slurmctld. All nodes have the
        # program `true`.
        Epilog = high "/run/current-system/sw/bin/true";
      };
    })
  ];
}
