# The pod network `flannel`: VXLAN between nodes, with subnets that the controller
# manager gives out. It runs as pods, whose images must be loaded or reachable.
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
      data."cni-conf.json" = builtins.toJSON {
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
      data."net-conf.json" = builtins.toJSON {
        Network = cfg.podCidr;
        Backend.Type = "vxlan";
      };
    }
    {
      apiVersion = "apps/v1";
      kind = "DaemonSet";
      metadata = meta "kube-flannel-ds";
      spec.selector.matchLabels.app = "flannel";
      spec.template.metadata.labels.app = "flannel";
      spec.template.spec = {
        hostNetwork = true;
        priorityClassName = "system-node-critical";
        serviceAccountName = "flannel";
        tolerations = [ { operator = "Exists"; } ];
        initContainers = [
          {
            name = "install-cni-plugin";
            image = cfg.cni.flannel.pluginImage;
            command = [
              "cp"
              "-f"
              "/flannel"
              "/opt/cni/bin/flannel"
            ];
            volumeMounts = [
              {
                name = "cni-plugin";
                mountPath = "/opt/cni/bin";
              }
            ];
          }
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
              lib.mapAttrsToList
                (name: field: {
                  inherit name;
                  valueFrom.fieldRef.fieldPath = "metadata.${field}";
                })
                {
                  POD_NAME = "name";
                  POD_NAMESPACE = "namespace";
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
          (hostPath "cni-plugin" "/opt/cni/bin" "DirectoryOrCreate")
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
      default = "ghcr.io/flannel-io/flannel:v0.27.4";
      example = "registry.example.org/flannel:v0.27.4";
      description = "Image of the daemon.";
    };
    pluginImage = mkOption {
      type = types.str;
      default = "ghcr.io/flannel-io/flannel-cni-plugin:v1.8.0-flannel1";
      example = "registry.example.org/flannel-cni-plugin:v1.8.0-flannel1";
      description = "Image with the CNI plugin.";
    };
  };

  # implementation
  config = lib.mkIf (cfg.role != null && cfg.cni.name == "flannel") {
    nixbench.kubernetes.manifests = lib.mkBefore [
      (json.generate "flannel.json" {
        apiVersion = "v1";
        kind = "List";
        items = objects;
      })
    ];
    boot.kernelModules = lib.mkIf (!config.boot.isContainer) [ "vxlan" ];
    networking.firewall = lib.mkIf cfg.openFirewall {
      allowedUDPPorts = [ 8472 ];
      trustedInterfaces = [
        "cni0"
        "flannel.1"
      ];
    };
  };
}
