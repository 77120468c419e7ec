# Renews the certificates of control planes. The certificates that kubeadm signs are valid for a year. Each control plane renews
# its own certificates before they expire. Kubelets renew their certificates without this module.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib) mkOption types;
  cfg = config.nixbench.kubernetes;

  # How long the certificates of kubeadm are valid, in whole hours.
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
        Whether a control plane renews its certificates before they expire, and restarts the programs that read
        them. They expire after a year.
      '';
    };
    renewBefore = mkOption {
      type = types.ints.positive;
      default = 60;
      example = 30;
      description = "Number of days between the renewal of a certificate and its expiry.";
    };
  };

  # implementation
  config = lib.mkIf (cfg.configured && cfg.certificates.renew) {
    assertions = [
      {
        assertion = cfg.settings.kubelet.rotateCertificates;
        message = "nixbench.kubernetes.settings.kubelet.rotateCertificates is off, so the kubelet's certificate expires and is not renewed; leave it on, or set nixbench.kubernetes.certificates.renew = false and renew by hand.";
      }
      {
        assertion = cfg.role != "control-plane" || cfg.certificates.renewBefore * 24 < hours;
        message = "nixbench.kubernetes.certificates.renewBefore (${toString cfg.certificates.renewBefore} days) is not shorter than the validity of certificates (nixbench.kubernetes.settings.cluster.certificateValidityPeriod, by default 8760h), so they would be renewed every day; lower it.";
      }
    ];

    systemd.services.nixbench-kubernetes-certificates = lib.mkIf (cfg.role == "control-plane") (
      cfg.bootstrap.service
      // {
        description = "Renew the control plane's certificates before they expire";
        # A switch must not interrupt a renewal.
        restartIfChanged = false;
        unitConfig.ConditionPathExists = "/var/lib/nixbench/kubernetes/joined";
        environment = cfg.bootstrap.service.environment // {
          RENEW_BEFORE = toString cfg.certificates.renewBefore;
        };
        serviceConfig = {
          Type = "oneshot";
          ExecStart = cfg.bootstrap.program "certificates";
          SyslogIdentifier = "nixbench-kubernetes-certificates";
          UMask = "0077";
        };
      }
    );
    # Control planes are usually created on the same day. Each has a random delay, so that their API servers do not
    # restart at the same time.
    systemd.timers.nixbench-kubernetes-certificates = lib.mkIf (cfg.role == "control-plane") {
      description = "Check daily whether certificates expire soon";
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
