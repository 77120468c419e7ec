# Settings that make waits shorter than with kubeadm's defaults. nixbench waits for each restart of a control plane and for each
# node that joins, so these waits add up in a deployment.
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

  # A startup probe that runs every second. kubeadm's startup probes begin only after ten seconds, and run every ten seconds. The
  # probe gives a component ten minutes for its start. After the start, only the liveness probe runs.
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
      # This readiness probe of CoreDNS runs every second instead of every ten seconds. As by default, it may fail for half a
      # minute. kubeadm before 1.32 ignores this patch.
      corednsdeployment.spec.template.spec.containers = [
        {
          name = "coredns";
          readinessProbe = {
            periodSeconds = 1;
            failureThreshold = 30;
          };
        }
      ];
    };

  # In a new cluster, these components start before the API server accepts their requests. With the default of 2 s, they
  # try to become the leader again after 2 to 4.4 s. No node can join before the controller manager leads.
  leaderElection.leader-elect-retry-period = mkDefault "500ms";

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
      ] (_: { patches.directory = mkDefault "${directory}"; })
      // {
        # kubeadm's default is RSA. A control plane generates a dozen keys: with RSA this takes a second of processor time, and
        # with ECDSA some milliseconds. TLS handshakes are faster, too, and the API server makes about a hundred when it starts.
        cluster.encryptionAlgorithm = mkDefault "ECDSA-P256";
      };

      # At its start, the controller manager requests credentials for each of its forty controllers. With the default of
      # 20 requests per second, no node can join for five seconds.
      controllerManager.extraArgs = {
        kube-api-qps = mkDefault 100;
        kube-api-burst = mkDefault 200;
      }
      // leaderElection;
      scheduler.extraArgs = leaderElection;
      # Without this setting, an API server that stops keeps idle watch connections open until it is killed after 30 s. With
      # the setting, it closes them one by one, so that the clients do not all reconnect to the other API servers at once.
      apiServer.extraArgs.shutdown-watch-termination-grace-period = mkDefault "10s";
    };
  };
}
