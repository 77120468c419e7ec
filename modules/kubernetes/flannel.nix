# The pod network `flannel`. By default, nodes exchange packets of pods with VXLAN. The controller manager assigns a subnet
# to each node. The daemon runs in pods, whose image must be in `images` or in a registry. The CNI plugin is a package.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib) mkOption types;
  cfg = config.nixbench.kubernetes;
  json = pkgs.formats.json { };

  meta = name: {
    inherit name;
    namespace = "kube-flannel";
  };
  rbac = "rbac.authorization.k8s.io";
  hostPath = name: path: type: {
    inherit name;
    hostPath = { inherit path type; };
  };
  backend = cfg.cni.flannel.settings.Backend;

  files = {
    "cni-conf.json" = builtins.toJSON {
      name = "cbr0";
      cniVersion = "0.3.1";
      plugins = [
        {
          type = "flannel";
          delegate = {
            hairpinMode = true;
            isDefaultGateway = true;
          };
        }
        {
          type = "portmap";
          capabilities.portMappings = true;
        }
      ];
    };
    "net-conf.json" = builtins.toJSON cfg.cni.flannel.settings;
  };

  objects = [
    {
      apiVersion = "v1";
      kind = "Namespace";
      metadata.name = "kube-flannel";
      metadata.labels."pod-security.kubernetes.io/enforce" = "privileged";
    }
    {
      apiVersion = "v1";
      kind = "ServiceAccount";
      metadata = meta "flannel";
    }
    {
      apiVersion = "${rbac}/v1";
      kind = "ClusterRole";
      metadata.name = "flannel";
      rules = [
        {
          apiGroups = [ "" ];
          resources = [ "pods" ];
          verbs = [ "get" ];
        }
        {
          apiGroups = [ "" ];
          resources = [ "nodes" ];
          verbs = [
            "get"
            "list"
            "watch"
          ];
        }
        {
          apiGroups = [ "" ];
          resources = [ "nodes/status" ];
          verbs = [ "patch" ];
        }
      ];
    }
    {
      apiVersion = "${rbac}/v1";
      kind = "ClusterRoleBinding";
      metadata.name = "flannel";
      roleRef = {
        apiGroup = rbac;
        kind = "ClusterRole";
        name = "flannel";
      };
      subjects = [ ({ kind = "ServiceAccount"; } // meta "flannel") ];
    }
    {
      apiVersion = "v1";
      kind = "ConfigMap";
      metadata = meta "kube-flannel-cfg";
      data = files;
    }
    {
      apiVersion = "apps/v1";
      kind = "DaemonSet";
      metadata = meta "kube-flannel-ds";
      spec.selector.matchLabels.app = "flannel";
      spec.template.metadata.labels.app = "flannel";
      # The value is a hash of the configuration files. When a file changes, the hash restarts the pods, because a pod reads the
      # files only when it starts.
      spec.template.metadata.annotations."nixbench.dev/files" = builtins.hashString "sha256" (builtins.toJSON files);
      spec.template.spec = {
        hostNetwork = true;
        priorityClassName = "system-node-critical";
        serviceAccountName = "flannel";
        tolerations = [ { operator = "Exists"; } ];
        initContainers = [
          {
            name = "install-cni";
            inherit (cfg.cni.flannel) image;
            command = [
              "cp"
              "-f"
              "/etc/kube-flannel/cni-conf.json"
              "/etc/cni/net.d/05-flannel.conflist"
            ];
            volumeMounts = [
              {
                name = "cni";
                mountPath = "/etc/cni/net.d";
              }
              {
                name = "flannel-cfg";
                mountPath = "/etc/kube-flannel/";
              }
            ];
          }
        ];
        containers = [
          {
            name = "kube-flannel";
            inherit (cfg.cni.flannel) image;
            command = [ "/opt/bin/flanneld" ];
            args = [
              "--ip-masq"
              "--kube-subnet-mgr"
              # Use the network interface that has the address of the node. By default, flannel uses the interface of the default
              # route.
              "--iface=$(NODE_IP)"
            ];
            resources.requests = {
              cpu = "100m";
              memory = "50Mi";
            };
            securityContext.privileged = false;
            securityContext.capabilities.add = [
              "NET_ADMIN"
              "NET_RAW"
            ];
            env =
              lib.mapAttrsToList (name: fieldPath: {
                inherit name;
                valueFrom.fieldRef = { inherit fieldPath; };
              }) {
                NODE_IP = "status.hostIP";
                POD_NAME = "metadata.name";
                POD_NAMESPACE = "metadata.namespace";
              }
              # Set the address of the API to the cluster's endpoint. The Service of the API does not work before kube-proxy has
              # added its rules, and flannel may start before kube-proxy.
              ++ lib.mapAttrsToList (name: value: { inherit name value; }) {
                KUBERNETES_SERVICE_HOST = toString cfg.endpoint.address;
                KUBERNETES_SERVICE_PORT = toString cfg.endpoint.port;
              };
            volumeMounts = [
              {
                name = "run";
                mountPath = "/run/flannel";
              }
              {
                name = "flannel-cfg";
                mountPath = "/etc/kube-flannel/";
              }
              {
                name = "xtables-lock";
                mountPath = "/run/xtables.lock";
              }
            ];
          }
        ];
        volumes = [
          (hostPath "run" "/run/flannel" "DirectoryOrCreate")
          (hostPath "cni" "/etc/cni/net.d" "DirectoryOrCreate")
          (hostPath "xtables-lock" "/run/xtables.lock" "FileOrCreate")
          {
            name = "flannel-cfg";
            configMap.name = "kube-flannel-cfg";
          }
        ];
      };
    }
  ];
in
{
  # interface
  options.nixbench.kubernetes.cni.flannel = {
    image = mkOption {
      type = types.str;
      default = "ghcr.io/flannel-io/flannel:v0.28.4";
      example = "registry.example.org/flannel:v0.28.4";
      description = "Image of the flannel daemon.";
    };
    settings = mkOption {
      inherit (json) type;
      default = { };
      example = {
        Backend.Type = "host-gw";
      };
      description = ''
        Contents of flannel's net-conf.json. The backend is `vxlan` by default; `host-gw` requires that all nodes
        are in one network. For other backends, open the ports of the firewall yourself.
      '';
    };
  };

  # implementation
  config = lib.mkIf (cfg.role != null && cfg.cni.name == "flannel") {
    nixbench.kubernetes.cni.flannel.settings = {
      Network = cfg.podCidr;
      Backend.Type = lib.mkDefault "vxlan";
    };
    nixbench.kubernetes.manifests = lib.mkBefore [
      (json.generate "flannel.json" {
        apiVersion = "v1";
        kind = "List";
        items = objects;
      })
    ];
    systemd.tmpfiles.settings.nixbench-cni."/opt/cni/bin/flannel"."L+".argument = "${pkgs.cni-plugin-flannel}/bin/flannel";
    boot.kernelModules = lib.mkIf (!config.boot.isContainer && backend.Type == "vxlan") [ "vxlan" ];
    networking.firewall = lib.mkIf cfg.openFirewall {
      allowedUDPPorts = lib.mkIf (backend.Type == "vxlan") [ (backend.Port or 8472) ];
      trustedInterfaces = [
        "cni0"
      ]
      ++ lib.optional (backend.Type == "vxlan") "flannel.${toString (backend.VNI or 1)}";
    };
  };
}
