# Kubernetes schedulers that run beside the default scheduler. A pod chooses one of them with `schedulerName`. Each scheduler is a
# Deployment on control planes. It can place the pods of a gang together (the plugin Coscheduling of scheduler-plugins).
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
  rbac = "rbac.authorization.k8s.io";
  namespace = "kube-system";
  gangs = "scheduling.x-k8s.io";
  usesGangs = lib.any (s: s.coscheduling.enable) (lib.attrValues cfg.schedulers);

  scheduler =
    { name, config, ... }:
    {
      options = {
        image = mkOption {
          type = types.str;
          default =
            if config.coscheduling.enable then
              "registry.k8s.io/scheduler-plugins/kube-scheduler:v0.34.7"
            else
              "registry.k8s.io/kube-scheduler:v${cfg.version}";
          defaultText = lib.literalMD "the image of scheduler-plugins with coscheduling, and otherwise that of Kubernetes' own scheduler";
          example = "registry.example.org/kube-scheduler:v0.34.7";
          description = "Image with a program `kube-scheduler`.";
        };
        replicas = mkOption {
          type = types.ints.positive;
          default = 1;
          example = 2;
          description = "Number of pods. One of them schedules, and another one takes over when it fails.";
        };
        coscheduling = {
          enable = mkOption {
            type = types.bool;
            default = false;
            example = true;
            description = ''
              Whether the scheduler places gangs. The pods of a gang have the label `scheduling.x-k8s.io/pod-group` with the
              name of a PodGroup. They start when `minMember` of them can start at the same time.
            '';
          };
          permitWaitingTimeSeconds = mkOption {
            type = types.ints.positive;
            default = 10;
            example = 60;
            description = "How long a placed pod waits for the other pods of its gang. After that its place is free for other pods.";
          };
        };
        profile = mkOption {
          inherit (json) type;
          default = { };
          example = {
            plugins.multiPoint.disabled = [ { name = "ImageLocality"; } ];
          };
          description = "Profile of the scheduler, as in `profiles` of a KubeSchedulerConfiguration.";
        };
        settings = mkOption {
          inherit (json) type;
          default = { };
          example = {
            parallelism = 32;
          };
          description = "Further fields of the KubeSchedulerConfiguration.";
        };
      };
      config = {
        profile = lib.mkMerge [
          { schedulerName = name; }
          (lib.mkIf config.coscheduling.enable {
            plugins.multiPoint.enabled = [ { name = "Coscheduling"; } ];
            plugins.queueSort = {
              enabled = [ { name = "Coscheduling"; } ];
              disabled = [ { name = "*"; } ];
            };
            pluginConfig = [
              {
                name = "Coscheduling";
                args = { inherit (config.coscheduling) permitWaitingTimeSeconds; };
              }
            ];
          })
        ];
        settings = lib.mkMerge [
          (lib.mapAttrsRecursive (_: lib.mkOverride 900) cfg.schedulerDefaults)
          {
            apiVersion = "kubescheduler.config.k8s.io/v1";
            kind = "KubeSchedulerConfiguration";
            leaderElection = {
              leaderElect = lib.mkDefault true;
              resourceName = name;
              resourceNamespace = namespace;
            };
            profiles = [ config.profile ];
          }
        ];
      };
    };

  objectsOf =
    name: s:
    let
      metadata = { inherit name namespace; };
      full = "nixbench:scheduler:${name}";
      subjects = [ ({ kind = "ServiceAccount"; } // metadata) ];
      binding = role: {
        apiVersion = "${rbac}/v1";
        kind = "ClusterRoleBinding";
        metadata.name = "${full}:${role}";
        roleRef = {
          apiGroup = rbac;
          kind = "ClusterRole";
          name = role;
        };
        inherit subjects;
      };
      labels."nixbench.dev/scheduler" = name;
      file = builtins.toJSON s.settings;
    in
    [
      {
        apiVersion = "v1";
        kind = "ServiceAccount";
        inherit metadata;
      }
      {
        apiVersion = "${rbac}/v1";
        kind = "ClusterRole";
        metadata.name = full;
        # A further scheduler needs these rules, because the role system:kube-scheduler permits only the lease of the default
        # scheduler.
        rules = [
          {
            apiGroups = [ "coordination.k8s.io" ];
            resources = [ "leases" ];
            resourceNames = [ name ];
            verbs = [
              "get"
              "update"
            ];
          }
        ]
        ++ lib.optional s.coscheduling.enable {
          apiGroups = [ gangs ];
          resources = [ "podgroups" ];
          verbs = [
            "get"
            "list"
            "watch"
          ];
        };
      }
      (binding full)
      (binding "system:kube-scheduler")
      (binding "system:volume-scheduler")
      {
        apiVersion = "${rbac}/v1";
        kind = "RoleBinding";
        metadata = {
          name = full;
          inherit namespace;
        };
        roleRef = {
          apiGroup = rbac;
          kind = "Role";
          name = "extension-apiserver-authentication-reader";
        };
        inherit subjects;
      }
      {
        apiVersion = "v1";
        kind = "ConfigMap";
        inherit metadata;
        data."config.json" = file;
      }
      {
        apiVersion = "apps/v1";
        kind = "Deployment";
        inherit metadata;
        spec = {
          inherit (s) replicas;
          selector.matchLabels = labels;
          template.metadata = {
            inherit labels;
            # The value is a hash of the configuration file. When the file changes, the hash replaces the pods, because a pod
            # reads the file only when it starts.
            annotations."nixbench.dev/files" = builtins.hashString "sha256" file;
          };
          template.spec = {
            priorityClassName = "system-cluster-critical";
            serviceAccountName = name;
            nodeSelector."node-role.kubernetes.io/control-plane" = "";
            tolerations = [
              {
                key = "node-role.kubernetes.io/control-plane";
                operator = "Exists";
                effect = "NoSchedule";
              }
            ];
            topologySpreadConstraints = [
              {
                maxSkew = 1;
                topologyKey = "kubernetes.io/hostname";
                whenUnsatisfiable = "ScheduleAnyway";
                labelSelector.matchLabels = labels;
              }
            ];
            containers = [
              {
                name = "scheduler";
                inherit (s) image;
                command = [ "kube-scheduler" ];
                args = [ "--config=/etc/nixbench/config.json" ];
                resources.requests.cpu = "100m";
                securityContext = {
                  allowPrivilegeEscalation = false;
                  capabilities.drop = [ "ALL" ];
                  readOnlyRootFilesystem = true;
                  runAsNonRoot = true;
                  runAsUser = 65532;
                };
                readinessProbe.httpGet = {
                  path = "/readyz";
                  port = 10259;
                  scheme = "HTTPS";
                };
                readinessProbe.periodSeconds = 2;
                livenessProbe = {
                  httpGet = {
                    path = "/livez";
                    port = 10259;
                    scheme = "HTTPS";
                  };
                  initialDelaySeconds = 15;
                };
                volumeMounts = [
                  {
                    name = "config";
                    mountPath = "/etc/nixbench";
                    readOnly = true;
                  }
                ];
              }
            ];
            volumes = [
              {
                name = "config";
                configMap = { inherit name; };
              }
            ];
          };
        };
      }
    ];

  # The kind PodGroup of scheduler-plugins.
  podGroups = {
    apiVersion = "apiextensions.k8s.io/v1";
    kind = "CustomResourceDefinition";
    metadata = {
      name = "podgroups.${gangs}";
      annotations."api-approved.kubernetes.io" = "https://github.com/kubernetes-sigs/scheduler-plugins/pull/50";
    };
    spec = {
      group = gangs;
      scope = "Namespaced";
      names = {
        kind = "PodGroup";
        listKind = "PodGroupList";
        plural = "podgroups";
        singular = "podgroup";
        shortNames = [ "pg" ];
      };
      versions = [
        {
          name = "v1alpha1";
          served = true;
          storage = true;
          subresources.status = { };
          additionalPrinterColumns = [
            {
              name = "MinMember";
              type = "integer";
              jsonPath = ".spec.minMember";
            }
            {
              name = "Age";
              type = "date";
              jsonPath = ".metadata.creationTimestamp";
            }
          ];
          schema.openAPIV3Schema = {
            type = "object";
            properties = {
              spec = {
                type = "object";
                properties = {
                  minMember = {
                    type = "integer";
                    format = "int32";
                    minimum = 1;
                    description = "The number of pods that start at the same time.";
                  };
                  minResources = {
                    type = "object";
                    additionalProperties."x-kubernetes-int-or-string" = true;
                    description = "The resources of these pods together. With fewer free resources, no pod is tried.";
                  };
                  scheduleTimeoutSeconds = {
                    type = "integer";
                    format = "int32";
                    description = "How long a placed pod waits for the others, instead of the scheduler's setting.";
                  };
                };
              };
              status = {
                type = "object";
                x-kubernetes-preserve-unknown-fields = true;
              };
            };
          };
        }
      ];
    };
  };
in
{
  # interface
  options.nixbench.kubernetes.schedulers = mkOption {
    type = types.attrsOf (types.submodule scheduler);
    default = { };
    example = {
      gangs.coscheduling.enable = true;
    };
    description = ''
      Schedulers beside the default one, by the name that pods have in `schedulerName`. Only control planes use
      this option. A scheduler that is removed from it stays in the cluster.
    '';
  };
  options.nixbench.kubernetes.schedulerDefaults = mkOption {
    inherit (json) type;
    default = { };
    internal = true;
    description = "Values in `settings` of all `schedulers`. They replace values with `mkDefault`, and plain values replace them.";
  };

  # implementation
  config = lib.mkIf (cfg.role == "control-plane" && cfg.schedulers != { }) {
    assertions = lib.mapAttrsToList (name: _: {
      assertion = builtins.match "[a-z]([a-z0-9-]{0,48}[a-z0-9])?" name != null && name != "default-scheduler" && name != "kube-scheduler";
      message = "nixbench.kubernetes.schedulers.${name}: this is not a valid name of a further scheduler; use lowercase letters, digits and hyphens, and neither default-scheduler nor kube-scheduler.";
    }) cfg.schedulers;

    nixbench.kubernetes.manifests = [
      (json.generate "schedulers.json" {
        apiVersion = "v1";
        kind = "List";
        items = lib.optional usesGangs podGroups ++ lib.concatLists (lib.mapAttrsToList objectsOf cfg.schedulers);
      })
    ];
    nixbench.kubernetes.checks = lib.mapAttrs' (
      name: _:
      lib.nameValuePair "scheduler-${name}" {
        resource = "deployment.apps/${name}";
        inherit namespace;
        condition = "Available";
      }
    ) cfg.schedulers;
  };
}
