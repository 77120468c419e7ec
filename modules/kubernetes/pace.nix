# What would keep a cluster waiting although all of it works: kubeadm's own settings suit a
# cluster that is made once, and this one is changed while somebody waits.
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

  # The kubelet would not look for the first ten seconds, and then every ten. Nobody looks any
  # more once a program has started, for which it has ten minutes.
  starting = name: {
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
    ] starting
    // {
      # Every ten seconds, too. As before, it may fail for half a minute. kubeadm before 1.32 does
      # not know this target, and leaves it out.
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

      # Each of its forty controllers begins by asking for credentials, and with 20 requests a
      # second the last one begins after five seconds; so long no node can join.
      controllerManager.extraArgs = {
        kube-api-qps = mkDefault 100;
        kube-api-burst = mkDefault 200;
      };
      # A server that ends would else keep those who watch something, whom it tells nothing any
      # more, until it is killed after half a minute. They go as fast as is good for other
      # servers, to which they come; few of them at once.
      apiServer.extraArgs.shutdown-watch-termination-grace-period = mkDefault "10s";
    };
  };
}
