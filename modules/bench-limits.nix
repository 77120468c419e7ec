# Settings of the nodes of a benchmark with limits = "high": the clients of Kubernetes' scheduler and controller manager may send as many requests as
# in scheduler_perf, the benchmark of Kubernetes itself. An API server on one computer answers fewer, so these settings limit nothing.
# Their priority is between that of mkDefault, which modules/kubernetes uses for the controller manager, and that of a plain definition, so a hive or
# a level with other values has these.
{ lib, options, ... }:
let
  requests = lib.mkOverride 900 5000;
  extraArgs = {
    kube-api-qps = requests;
    kube-api-burst = requests;
  };
in
{
  config = lib.optionalAttrs (options ? nixbench.kubernetes.scheduler) {
    nixbench.kubernetes = {
      scheduler = { inherit extraArgs; };
      controllerManager = { inherit extraArgs; };
    };
  };
}
