# Certificates that kubeadm signs live for a year. Each control plane renews its own
# before they end; kubelets have one each, which they renew themselves.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib) mkOption types;
  cfg = config.nixbench.kubernetes;

  # kubeadm's durations, in whole hours.
  life = builtins.match "([0-9]+)h.*" (cfg.settings.cluster.certificateValidityPeriod or "8760h0m0s");
  hours = if life == null then 0 else lib.toInt (lib.head life);
in
{
  # interface
  options.nixbench.kubernetes.certificates = {
    renew = mkOption {
      type = types.bool;
      default = true;
      example = false;
      description = ''
        Whether a control plane renews its certificates before they end, and restarts what reads them.
        Without it they end a year after they were made, and the cluster with them.
      '';
    };
    renewBefore = mkOption {
      type = types.ints.positive;
      default = 60;
      example = 30;
      description = "How many days before their end certificates are renewed.";
    };
  };

  # implementation
  config = lib.mkIf (cfg.configured && cfg.certificates.renew) {
    assertions = [
      {
        assertion = cfg.settings.kubelet.rotateCertificates;
        message = "nixbench.kubernetes.settings.kubelet.rotateCertificates is off, so the kubelet's certificate would end and nobody renew it; leave it on, or set nixbench.kubernetes.certificates.renew = false and renew by hand.";
      }
      {
        assertion = cfg.role != "control-plane" || cfg.certificates.renewBefore * 24 < hours;
        message = "nixbench.kubernetes.certificates.renewBefore (${toString cfg.certificates.renewBefore} days) is not shorter than certificates live (nixbench.kubernetes.settings.cluster.certificateValidityPeriod, by default 8760h), so they would be renewed every day; lower it.";
      }
    ];

    systemd.services.nixbench-kubernetes-certificates = lib.mkIf (cfg.role == "control-plane") (
      cfg.bootstrap.service
      // {
        description = "Renew the control plane's certificates before they end";
        # A switch in its midst must not cut it short.
        restartIfChanged = false;
        unitConfig.ConditionPathExists = "/var/lib/nixbench/kubernetes/joined";
        environment = cfg.bootstrap.service.environment // {
          RENEW_BEFORE = toString cfg.certificates.renewBefore;
        };
        path = cfg.bootstrap.service.path ++ [ pkgs.etcd ];
        serviceConfig = {
          Type = "oneshot";
          ExecStart = cfg.bootstrap.program "nixbench-kubernetes-certificates" [
            "state"
            "static-pods"
            "certificates"
          ];
          SyslogIdentifier = "nixbench-kubernetes-certificates";
          UMask = "0077";
        };
      }
    );
    # Control planes were mostly made on one day. Each has an hour of its own, so that
    # their servers do not restart together.
    systemd.timers.nixbench-kubernetes-certificates = lib.mkIf (cfg.role == "control-plane") {
      description = "Look each day whether certificates are about to end";
      wantedBy = [ "timers.target" ];
      timerConfig = {
        OnCalendar = "daily";
        RandomizedDelaySec = "12h";
        FixedRandomDelay = true;
        Persistent = true;
      };
    };
  };
}
