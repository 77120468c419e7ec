# The kubelet. Its systemd unit contains the path of its configuration in the Nix store. So a switch that changes the
# configuration restarts the kubelet, and a rollback restores the old configuration without kubeadm. The kubelet does not read
# config.yaml, the configuration that kubeadm writes. The existence of config.yaml only means that the kubelet may start.
{
  config,
  lib,
  options,
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
      description = "Effect of the taint on pods that do not tolerate the taint.";
    };
  };

  # Whether the API allows a kubelet to set a label on its own node. It allows all labels
  # outside of the domains of Kubernetes, and a few labels in these domains.
  kubeletMaySet =
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
  # Whether nixbench may set and remove a label on a node: all labels, except those that Kubernetes itself sets.
  nixbenchMaySet =
    label:
    !lib.elem label [
      "kubernetes.io/arch"
      "kubernetes.io/hostname"
      "kubernetes.io/os"
      "node-role.kubernetes.io/control-plane"
    ];
  labels = lib.attrNames cfg.nodeLabels;
  taints = if cfg.nodeTaints == null then [ ] else cfg.nodeTaints;

  # The hive may set labels that a kubelet may not set on its own node only if nixbench deploys the node, because nixbench then
  # sets them.
  withNixbench = options ? deployment.engine;
  forbidden = lib.filter (label: !(if withNixbench then nixbenchMaySet else kubeletMaySet) label) labels;

  # The rules of Kubernetes for keys and values of labels and taints. A key is a name, or a domain, a slash and a name.
  isName = text: lib.stringLength text <= 63 && builtins.match "[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?" text != null;
  isValue = text: text == "" || isName text;
  isDomain =
    text:
    lib.stringLength text <= 253
    && builtins.match "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*" text != null;
  isKey =
    text:
    let
      parts = lib.splitString "/" text;
    in
    isName (lib.last parts) && (lib.length parts == 1 || lib.length parts == 2 && isDomain (lib.head parts));

  badKeys = lib.filter (label: !isKey label) labels;
  badValues = lib.filter (label: !isValue cfg.nodeLabels.${label}) labels;
  badTaints = lib.filter (t: !isKey t.key || !isValue t.value) taints;
  conditionTaints = lib.filter (t: lib.hasPrefix "node.kubernetes.io/" t.key) taints;
  duplicateTaints = lib.filter (t: lib.count (other: other.key == t.key && other.effect == t.effect) taints > 1) taints;
  quoted = lib.concatMapStringsSep " and " (text: "\"${text}\"");

  # The labels and taints with which a node registers. nixbench uploads them as a key and not as a part of the system, so that a
  # change of them restarts no systemd unit and does not drain the node.
  registration = {
    labels = lib.filterAttrs (label: _: kubeletMaySet label) cfg.nodeLabels;
    taints = cfg.nodeTaints;
  };

  # With one of these parameters of the kernel, systemd uses cgroup v1.
  cgroupV1Params = lib.intersectLists config.boot.kernelParams (
    map (value: "systemd.unified_cgroup_hierarchy=${value}") [ "0" "no" "false" "off" ]
  );

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
      description = ''
        Labels of the node. The next `nixbench apply` updates the labels of existing nodes. Labels that other
        clients have set stay.
      '';
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
        Taints of the node; `[ ]` means no taints. With null, a control plane has the taint of kubeadm, and a
        worker has none. The next `nixbench apply` updates the taints of existing nodes. Taints that other clients
        have set stay.
      '';
    };
    kubelet.extraArgs = mkOption {
      type = types.listOf types.str;
      default = [ ];
      example = [ "--v=4" ];
      description = "Additional arguments of the kubelet, for settings that are not fields of `settings.kubelet`.";
    };
    registration = mkOption {
      type = types.path;
      internal = true;
      readOnly = true;
      default = if withNixbench then "/var/lib/nixbench/kubernetes-registration.json" else "${json.generate "registration.json" registration}";
      description = "File with the labels and taints that the node registers with.";
    };
  };

  # implementation
  config = lib.mkIf (cfg.role != null) ({
    assertions = [
      {
        assertion = forbidden == [ ];
        message =
          "nixbench.kubernetes.nodeLabels has ${lib.concatStringsSep " and " forbidden}, which "
          + (
            if withNixbench then
              "Kubernetes sets itself; remove it."
            else
              "the API does not allow a node to set on itself; use a domain of your own, or node.kubernetes.io/."
          );
      }
      {
        assertion = badKeys == [ ];
        message = "nixbench.kubernetes.nodeLabels has ${quoted badKeys}, which is not a valid key of a label; a key is a name of at most 63 letters, digits, -, _ and ., with or without a domain and a / before it.";
      }
      {
        assertion = badValues == [ ];
        message = "nixbench.kubernetes.nodeLabels.${quoted badValues} has an invalid value; the value of a label has at most 63 letters, digits, -, _ and ., and begins and ends with a letter or digit.";
      }
      {
        assertion = badTaints == [ ];
        message = "nixbench.kubernetes.nodeTaints has ${quoted (map (t: "${t.key}=${t.value}") badTaints)}, which is not a valid taint; key and value follow the rules for labels.";
      }
      {
        assertion = conditionTaints == [ ];
        message = "nixbench.kubernetes.nodeTaints has ${quoted (map (t: t.key) conditionTaints)}, which Kubernetes adds and removes with the node's condition; use a domain of your own.";
      }
      {
        assertion = duplicateTaints == [ ];
        message = "nixbench.kubernetes.nodeTaints has ${quoted (lib.unique (map (t: "${t.key}:${t.effect}") duplicateTaints))} more than once; a node has only one taint with the same key and effect.";
      }
      {
        assertion =
          config.swapDevices == [ ] && !config.zramSwap.enable || !(cfg.settings.kubelet.failSwapOn or true);
        message = "The kubelet does not start on a node with swap: set swapDevices = lib.mkForce [ ] and zramSwap.enable = false, or nixbench.kubernetes.settings.kubelet.failSwapOn = false.";
      }
      {
        assertion =
          lib.versionOlder cfg.version "1.35"
          || !(cfg.settings.kubelet.failCgroupV1 or true)
          || cgroupV1Params == [ ];
        message = "The kubelet of Kubernetes ${cfg.version} does not start with cgroup v1: remove ${lib.concatStringsSep " and " cgroupV1Params} from boot.kernelParams, or set nixbench.kubernetes.settings.kubelet.failCgroupV1 = false.";
      }
      {
        assertion = config.system.etc.overlay.mutable or true;
        message = "kubeadm writes files below /etc/kubernetes, but /etc is read-only; set system.etc.overlay.mutable = true.";
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
      # Without `wants`, a switch that stops the container runtime would start the container runtime again only after the restart
      # of the kubelet.
      wants = [
        "network-online.target"
        cfg.containerRuntime.unit
      ];
      after = [
        "network-online.target"
        cfg.containerRuntime.unit
      ];
      # The kubelet starts only when this file exists. kubeadm writes the file before it starts the kubelet.
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
      # Restart the kubelet after the switch, instead of stopping it before the switch and starting it afterwards. Pods continue
      # to run without the kubelet, and a restart makes this time shorter.
      stopIfChanged = false;
      startLimitIntervalSec = 0;
      environment = {
        CONFIG = json.generate "kubelet.json" cfg.settings.kubelet;
        NODE_FILE = config.nixbench.nodeFile;
        # The network of the Services, or an empty string. The start script of the kubelet drops packets to Services for which
        # kube-proxy has no rules yet. The string is empty with IPVS, because the addresses of Services are then addresses of the
        # node, and if another program replaces kube-proxy.
        SERVICES = lib.optionalString (
          cfg.settings.proxy.mode or "" != "ipvs"
          && lib.intersectLists [ "addon" "addon/kube-proxy" ] (cfg.settings.init.skipPhases or [ ]) == [ ]
        ) cfg.serviceCidr;
        REGISTRATION = cfg.registration;
      };
      serviceConfig = {
        EnvironmentFile = "-/var/lib/kubelet/kubeadm-flags.env";
        SyslogIdentifier = "kubelet";
        ExecStart = pkgs.writeShellScript "kubelet-start" (
          # The arguments of the kubelet are in this script, because systemd would expand variables in ExecStart.
          "set -- ${lib.escapeShellArgs ([ "${cfg.package}/bin/kubelet" ] ++ cfg.kubelet.extraArgs)}\n"
          # Add only this file of the library, because each change of a file in this script restarts the kubelet.
          + builtins.readFile ./scripts/library/rules.sh
          + builtins.readFile ./scripts/kubelet.sh
        );
        Restart = "always";
        RestartSec = 5;
        # A stop of this service ends only the kubelet. The pods continue, because they have control groups of their own.
        KillMode = "process";
        Delegate = true;
      };
    };
  }
  // lib.optionalAttrs (options ? deployment.keys) {
    # nixbench uploads the labels and taints as a key: before a switch, and without a switch if only they have changed.
    deployment.keys.kubernetes-registration = {
      name = baseNameOf cfg.registration;
      destDir = dirOf cfg.registration;
      text = builtins.toJSON registration;
    };
  });
}
