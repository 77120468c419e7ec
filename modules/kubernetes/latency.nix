# Shorter waits than with kubeadm's defaults, which suit a cluster that is created once. Here, nixbench waits for each
# restart of a control plane and each node that joins.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib) mkDefault;
  cfg = config.nixbench.kubernetes;
  json = pkgs.formats.json { };

  # kubeadm's startup probes begin after ten seconds, and repeat every ten. A component has ten minutes to start; after
  # that only its liveness probe runs.
  startupProbe = name: {
    spec.containers = [
      {
        inherit name;
        startupProbe = {
          initialDelaySeconds = 0;
          periodSeconds = 1;
          failureThreshold = 600;
        };
      }
    ];
  };
  patches =
    lib.genAttrs [
      "etcd"
      "kube-apiserver"
      "kube-controller-manager"
      "kube-scheduler"
    ] startupProbe
    // {
      # Also every ten seconds by default. It may fail for half a minute, as by default. kubeadm before 1.32 ignores this
      # target.
      corednsdeployment.spec.template.spec.containers = [
        {
          name = "coredns";
          readinessProbe = {
            periodSeconds = 2;
            failureThreshold = 15;
          };
        }
      ];
    };
  directory = pkgs.runCommand "kubeadm-patches" { } (
    "mkdir $out\n"
    + lib.concatStrings (
      lib.mapAttrsToList (target: patch: ''
        cp ${json.generate "${target}.json" patch} $out/${target}+strategic.json
      '') patches
    )
  );
in
{
  # implementation
  config = lib.mkIf (cfg.role == "control-plane") {
    nixbench.kubernetes = {
      settings = lib.genAttrs [
        "init"
        "join"
      ] (_: { patches.directory = mkDefault "${directory}"; });

      # Each of its forty controllers first requests credentials. With the default of 20 requests per second, no node
      # can join for five seconds.
      controllerManager.extraArgs = {
        kube-api-qps = mkDefault 100;
        kube-api-burst = mkDefault 200;
      };
      # Without this, a stopping API server keeps idle watch connections open until it is killed after 30 s. It closes
      # them gradually, so that the other servers, to which the clients connect then, are not overloaded.
      apiServer.extraArgs.shutdown-watch-termination-grace-period = mkDefault "10s";
    };
  };
}
