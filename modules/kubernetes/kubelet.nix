# The kubelet. Its configuration is in the store and its unit names it: a switch that
# changes it restarts the kubelet, and a rollback brings the old one back, with no help
# from kubeadm. kubeadm's own copy only says whether the kubelet may start yet.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib) mkOption types;
  cfg = config.nixbench.kubernetes;

  taint.options = {
    key = mkOption {
      type = types.str;
      example = "dedicated";
      description = "Key of the taint.";
    };
    value = mkOption {
      type = types.str;
      default = "";
      example = "database";
      description = "Value of the taint.";
    };
    effect = mkOption {
      type = types.enum [
        "NoSchedule"
        "PreferNoSchedule"
        "NoExecute"
      ];
      default = "NoSchedule";
      example = "NoExecute";
      description = "What the taint does to pods that do not tolerate it.";
    };
  };

  # A kubelet may only give itself these among the labels of Kubernetes' own domains.
  mayLabel =
    label:
    let
      domain = lib.head (lib.splitString "/" label);
      reserved =
        d: lib.elem d [ "kubernetes.io" "k8s.io" ] || lib.hasSuffix ".kubernetes.io" d || lib.hasSuffix ".k8s.io" d;
      granted =
        d: lib.elem d [ "kubelet.kubernetes.io" "node.kubernetes.io" ]
        || lib.hasSuffix ".kubelet.kubernetes.io" d
        || lib.hasSuffix ".node.kubernetes.io" d;
    in
    !lib.hasInfix "/" label
    || !reserved domain
    || granted domain
    || lib.elem label [
      "kubernetes.io/arch"
      "kubernetes.io/hostname"
      "kubernetes.io/os"
      "topology.kubernetes.io/region"
      "topology.kubernetes.io/zone"
    ];
  forbidden = lib.filter (label: !mayLabel label) (lib.attrNames cfg.nodeLabels);

  json = pkgs.formats.json { };
in
{
  # interface
  options.nixbench.kubernetes = {
    nodeLabels = mkOption {
      type = types.attrsOf types.str;
      default = { };
      example = {
        "example.org/disk" = "ssd";
      };
      description = "Labels of the node.";
    };
    nodeTaints = mkOption {
      type = types.nullOr (types.listOf (types.submodule taint));
      default = null;
      example = [
        {
          key = "dedicated";
          value = "database";
          effect = "NoSchedule";
        }
      ];
      description = ''
        Taints that the node registers with. With null a control plane has the one that keeps ordinary
        pods away, and a worker none; `[ ]` means none. A node that is registered keeps what it has.
      '';
    };
    kubelet.extraArgs = mkOption {
      type = types.listOf types.str;
      default = [ ];
      example = [ "--v=4" ];
      description = "More arguments of the kubelet, for what `settings.kubelet` does not have.";
    };
  };

  # implementation
  config = lib.mkIf (cfg.role != null) {
    assertions = [
      {
        assertion = forbidden == [ ];
        message = "nixbench.kubernetes.nodeLabels has ${lib.concatStringsSep " and " forbidden}, which the API does not let a node give itself; choose a domain of your own, or node.kubernetes.io/.";
      }
      {
        assertion = config.system.etc.overlay.mutable or true;
        message = "kubeadm writes below /etc/kubernetes; set system.etc.overlay.mutable = true.";
      }
    ];

    systemd.tmpfiles.settings.nixbench-kubernetes = {
      "/etc/kubernetes".d.mode = "0755";
      "/etc/kubernetes/manifests".d.mode = "0700";
      "/etc/kubernetes/pki".d.mode = "0755";
      "/etc/cni".d.mode = "0755";
      "/etc/cni/net.d".d.mode = "0755";
      "/var/lib/kubelet".d.mode = "0700";
      "/var/lib/kubelet/volumeplugins".d.mode = "0755";
      "/var/lib/nixbench".d.mode = "0755";
      "/var/lib/nixbench/kubernetes".d.mode = "0700";
    };

    systemd.services.kubelet = {
      description = "Kubernetes node agent";
      documentation = [ "https://kubernetes.io/docs/" ];
      wantedBy = [ "multi-user.target" ];
      wants = [ "network-online.target" ];
      after = [
        "network-online.target"
        cfg.containerRuntime.unit
      ];
      # Until kubeadm has written this, there is nothing to run. kubeadm starts the unit.
      unitConfig.ConditionPathExists = "/var/lib/kubelet/config.yaml";
      path = [
        pkgs.conntrack-tools
        pkgs.ethtool
        pkgs.iproute2
        pkgs.iptables
        pkgs.jq
        pkgs.kmod
        pkgs.socat
        pkgs.util-linux
      ];
      # Pods run on meanwhile; a stop and a start would only make the gap longer.
      stopIfChanged = false;
      startLimitIntervalSec = 0;
      environment = {
        CONFIG = json.generate "kubelet.json" cfg.settings.kubelet;
        LABELS = lib.concatStringsSep "," (lib.mapAttrsToList (n: v: "${n}=${v}") cfg.nodeLabels);
        NODE_FILE = config.nixbench.nodeFile;
        SERVICES = cfg.serviceCidr;
      };
      serviceConfig = {
        EnvironmentFile = "-/var/lib/kubelet/kubeadm-flags.env";
        SyslogIdentifier = "kubelet";
        ExecStart = "${pkgs.writeShellScript "kubelet-start" (builtins.readFile ./scripts/kubelet.sh)} ${lib.escapeShellArgs ([ "${cfg.package}/bin/kubelet" ] ++ cfg.kubelet.extraArgs)}";
        Restart = "always";
        RestartSec = 5;
        # Pods have control groups of their own.
        KillMode = "process";
        Delegate = true;
      };
    };
  };
}
