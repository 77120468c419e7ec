# Settings of the nodes of a benchmark with limits = "high", so that it measures the schedulers and not their rate limiters.
# Their priority is between that of mkDefault, which modules/kubernetes uses for the controller manager, and that of a plain definition, so a hive or
# a level with other values has these.
{ lib, options, ... }:
let
  high = lib.mkOverride 900;
  # The clients of Kubernetes' schedulers and of its controller manager may send as many requests as in scheduler_perf, the benchmark of Kubernetes itself. An
  # API server on one computer answers fewer, so these settings limit nothing.
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
      nixbench.slurm.settings = {
        # slurmctld looks for jobs to start as soon as its loop, which runs once a second, sees that a job was submitted or has ended, and not only after
        # three seconds.
        SchedulerParameters = high "batch_sched_delay=0";
        # With an epilog, slurmd reports when a node is free again, and slurmctld starts the next job at once. Without one, slurmd has nothing to report
        # for a job that ended by itself, and the loop of slurmctld starts the next job. All nodes have this program.
        Epilog = high "/run/current-system/sw/bin/true";
      };
    })
  ];
}
