# The kubelet. Its configuration is in the store and its unit names it: a switch that
# changes it restarts the kubelet, and a rollback brings the old one back, with no help
# from kubeadm. kubeadm's own copy only says whether the kubelet may start yet.
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
  # Ours to give, and to take away again when the hive has them no more.
  mayFollow =
    label:
    !lib.elem label [
      "kubernetes.io/arch"
      "kubernetes.io/hostname"
      "kubernetes.io/os"
      "node-role.kubernetes.io/control-plane"
    ];
  labels = lib.attrNames cfg.nodeLabels;
  taints = if cfg.nodeTaints == null then [ ] else cfg.nodeTaints;

  # nixbench gives a node the labels that the node may not give itself.
  deployed = options ? deployment.engine;
  forbidden = lib.filter (label: !(if deployed then mayFollow else mayLabel) label) labels;

  # Of Kubernetes: what a name may be, before which there may be a domain.
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
  ofKubernetes = lib.filter (t: lib.hasPrefix "node.kubernetes.io/" t.key) taints;
  twice = lib.filter (t: lib.count (other: other.key == t.key && other.effect == t.effect) taints > 1) taints;
  quoted = lib.concatMapStringsSep " and " (text: "\"${text}\"");

  # What a node registers with. It is no part of the system: another label is no reason
  # to restart something, let alone to take the node's work away before.
  registration = {
    labels = lib.filterAttrs (label: _: mayLabel label) cfg.nodeLabels;
    taints = cfg.nodeTaints;
  };

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
        Labels of the node. A node of the cluster follows with the next `nixbench apply`, which changes
        nothing else on it; labels that others have put there stay.
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
        Taints of the node. With null a control plane has the one that keeps ordinary pods away, and a
        worker none; `[ ]` means none. A node of the cluster follows with the next `nixbench apply`; taints
        that others have put there stay. One with `NoExecute` ends pods that do not tolerate it.
      '';
    };
    kubelet.extraArgs = mkOption {
      type = types.listOf types.str;
      default = [ ];
      example = [ "--v=4" ];
      description = "More arguments of the kubelet, for what `settings.kubelet` does not have.";
    };
    registration = mkOption {
      type = types.path;
      internal = true;
      readOnly = true;
      default = if deployed then "/var/lib/nixbench/kubernetes-registration.json" else "${json.generate "registration.json" registration}";
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
            if deployed then
              "Kubernetes gives a node itself; leave it out."
            else
              "the API does not let a node give itself; choose a domain of your own, or node.kubernetes.io/."
          );
      }
      {
        assertion = badKeys == [ ];
        message = "nixbench.kubernetes.nodeLabels has ${quoted badKeys}, which is no name of a label; it is a name of at most 63 letters, digits, -, _ and ., perhaps with a domain and a / before.";
      }
      {
        assertion = badValues == [ ];
        message = "nixbench.kubernetes.nodeLabels.${quoted badValues} has a value that no label can have; it is at most 63 letters, digits, -, _ and ., and begins and ends with a letter or digit.";
      }
      {
        assertion = badTaints == [ ];
        message = "nixbench.kubernetes.nodeTaints has ${quoted (map (t: "${t.key}=${t.value}") badTaints)}, which is no taint; key and value are written as those of labels.";
      }
      {
        assertion = ofKubernetes == [ ];
        message = "nixbench.kubernetes.nodeTaints has ${quoted (map (t: t.key) ofKubernetes)}, which comes and goes with the node's condition; choose a domain of your own.";
      }
      {
        assertion = twice == [ ];
        message = "nixbench.kubernetes.nodeTaints has ${quoted (lib.unique (map (t: "${t.key}:${t.effect}") twice))} more than once; a node has one value for it.";
      }
      {
        assertion =
          config.swapDevices == [ ] && !config.zramSwap.enable || !(cfg.settings.kubelet.failSwapOn or true);
        message = "The kubelet does not run on a node that swaps: set swapDevices = lib.mkForce [ ] and zramSwap.enable = false, or nixbench.kubernetes.settings.kubelet.failSwapOn = false.";
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
      # A switch starts the runtime again only after it has restarted us, unless we ask for it.
      wants = [
        "network-online.target"
        cfg.containerRuntime.unit
      ];
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
        NODE_FILE = config.nixbench.nodeFile;
        # With IPVS the addresses of Services are the node's own, and packets keep them; and who
        # takes kube-proxy's place may do as it likes.
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
          # For the shell: systemd would expand what it finds in arguments.
          "set -- ${lib.escapeShellArgs ([ "${cfg.package}/bin/kubelet" ] ++ cfg.kubelet.extraArgs)}\n"
          + builtins.readFile ./scripts/rules.sh
          + builtins.readFile ./scripts/kubelet.sh
        );
        Restart = "always";
        RestartSec = 5;
        # Pods have control groups of their own.
        KillMode = "process";
        Delegate = true;
      };
    };
  }
  // lib.optionalAttrs (options ? deployment.keys) {
    # It comes as a key does: before the system, and by itself when it alone has changed.
    deployment.keys.kubernetes-registration = {
      name = baseNameOf cfg.registration;
      destDir = dirOf cfg.registration;
      text = builtins.toJSON registration;
    };
  });
}
