# Machines that simulate many nodes, called hollow nodes. A hollow node is only a Node object in the API. kwok simulates its
# heartbeats, leases and pods, in a pod on the machine. The machine itself is also a node of the cluster, and runs the pod of
# kwok.
{
  config,
  lib,
  options,
  pkgs,
  runtime,
  ...
}:
let
  inherit (lib) mkOption types;
  cfg = config.nixbench.kubernetes;
  facts = if runtime == null then { } else runtime;
  json = pkgs.formats.json { };

  machines = lib.filterAttrs (_: node: node.hollow or 0 > 0) (facts.nodes or { });

  arch = if pkgs.stdenv.hostPlatform.system == "aarch64-linux" then "arm64" else "amd64";

  # The label of a hollow node, whose value is the name of the machine that simulates the node. The Go package
  # deploy/engine/kubernetes uses the same label.
  label = "nixbench.dev/hollow";
  sizeAnnotation = "nixbench.dev/hollow-size";
  machineLabel = "nixbench.dev/hollow-machine";

  meta = {
    name = "kwok";
    namespace = "kube-system";
  };
  rbac = "rbac.authorization.k8s.io";
  rule = apiGroups: resources: verbs: { inherit apiGroups resources verbs; };
  read = [
    "get"
    "list"
    "watch"
  ];
  change = [
    "patch"
    "update"
  ];

  stage = name: spec: {
    apiVersion = "kwok.x-k8s.io/v1alpha1";
    kind = "Stage";
    metadata = { inherit name; };
    inherit spec;
  };
  ofKind = kind: {
    apiGroup = "v1";
    inherit kind;
  };
  is = key: operator: values: { inherit key operator values; };
  exists = key: operator: { inherit key operator; };
  containers = state: ''
    {{ $now := Now }}
    containerStatuses:
    {{ range .spec.containers }}
    - name: {{ .name | Quote }}
      image: {{ .image | Quote }}
      ready: ${if state == "running" then "true" else "false"}
      restartCount: 0
      state: ${
        if state == "running" then
          "{running: {startedAt: {{ $now | Quote }}}}"
        else
          "{terminated: {exitCode: 0, reason: Completed, finishedAt: {{ $now | Quote }}}}"
      }
    {{ end }}
  '';
  condition = type: ''{type: ${type}, status: "True", lastTransitionTime: {{ $now | Quote }}}'';

  stages = [
    (stage "node-ready" {
      resourceRef = ofKind "Node";
      selector.matchExpressions = [
        (is ''.status.conditions.[] | select( .type == "Ready" ) | .status'' "NotIn" [ "True" ])
      ];
      next.statusTemplate = ''
        {{ $now := Now }}
        conditions:
        {{ range NodeConditions }}
        - type: {{ .type | Quote }}
          status: {{ .status | Quote }}
          reason: {{ .reason | Quote }}
          message: {{ .message | Quote }}
          lastHeartbeatTime: {{ $now | Quote }}
          lastTransitionTime: {{ $now | Quote }}
        {{ end }}
        addresses:
        - {type: InternalIP, address: {{ NodeIP | Quote }}}
        - {type: Hostname, address: {{ .metadata.name | Quote }}}
        allocatable: {{ index .metadata.annotations "${sizeAnnotation}" }}
        capacity: {{ index .metadata.annotations "${sizeAnnotation}" }}
        nodeInfo:
          architecture: ${arch}
          bootID: ""
          containerRuntimeVersion: kwok-{{ Version }}
          kernelVersion: kwok
          kubeProxyVersion: ""
          kubeletVersion: v${cfg.version}
          machineID: ""
          operatingSystem: linux
          osImage: kwok
          systemUUID: ""
        phase: Running
      '';
    })
    (stage "pod-running" {
      resourceRef = ofKind "Pod";
      selector.matchExpressions = [
        (exists ".metadata.deletionTimestamp" "DoesNotExist")
        (exists ".status.podIP" "DoesNotExist")
      ];
      next.statusTemplate = containers "running" + ''
        conditions:
        - ${condition "Initialized"}
        - ${condition "Ready"}
        - ${condition "ContainersReady"}
        hostIP: {{ NodeIPWith .spec.nodeName | Quote }}
        podIP: {{ PodIPWith .spec.nodeName ( or .spec.hostNetwork false ) ( or .metadata.uid "" ) ( or .metadata.name "" ) ( or .metadata.namespace "" ) | Quote }}
        phase: Running
        startTime: {{ $now | Quote }}
      '';
    })
    (stage "pod-complete" {
      resourceRef = ofKind "Pod";
      selector.matchExpressions = [
        (exists ".metadata.deletionTimestamp" "DoesNotExist")
        (is ".status.phase" "In" [ "Running" ])
        (exists ''.metadata.annotations["nixbench.bench/runtime"]'' "Exists")
      ];
      delay = {
        durationMilliseconds = 0;
        durationFrom.expressionFrom = ''.metadata.annotations["nixbench.bench/runtime"]'';
      };
      next.statusTemplate = containers "terminated" + ''
        phase: Succeeded
      '';
    })
    (stage "pod-delete" {
      resourceRef = ofKind "Pod";
      selector.matchExpressions = [ (exists ".metadata.deletionTimestamp" "Exists") ];
      next.finalizers.empty = true;
      next.delete = true;
    })
  ];

  configuration = lib.concatMapStringsSep "\n---\n" builtins.toJSON (
    [
      {
        apiVersion = "config.kwok.x-k8s.io/v1alpha1";
        kind = "KwokConfiguration";
        options = {
          cidr = "198.18.0.1/15";
          enablePodsOnNodeSyncStreamWatch = true;
          manageAllNodes = false;
          nodeLeaseDurationSeconds = 40;
          nodeLeaseParallelism = 4;
          nodePlayStageParallelism = 4;
          podPlayStageParallelism = cfg.hollow.parallelism;
        };
      }
    ]
    ++ stages
  );

  node = machine: settings: number: {
    apiVersion = "v1";
    kind = "Node";
    metadata = {
      name = "${machine}-h${toString number}";
      labels = {
        ${label} = machine;
        "kubernetes.io/hostname" = "${machine}-h${toString number}";
        "kubernetes.io/os" = "linux";
        "kubernetes.io/arch" = arch;
      };
      # kwok copies the value of this annotation into the status of the Node object.
      annotations.${sizeAnnotation} = builtins.toJSON (
        {
          cpu = toString (settings.vcpus or 1);
          memory = "${settings.memory or "1G"}i";
          pods = "110";
        }
        // cfg.hollow.capacity
      );
    };
    # This taint keeps other pods away, because pods of the cluster, such as its DNS, must not be simulated.
    spec.taints = [
      {
        key = label;
        effect = "NoSchedule";
      }
    ];
  };

  objects = [
    {
      apiVersion = "v1";
      kind = "ServiceAccount";
      metadata = meta;
    }
    {
      apiVersion = "${rbac}/v1";
      kind = "ClusterRole";
      metadata.name = "nixbench-kwok";
      rules = [
        (rule [ "" ] [ "nodes" ] read)
        (rule [ "" ] [ "nodes/status" "pods/status" ] change)
        (rule [ "" ] [ "pods" ] (read ++ change ++ [ "delete" ]))
        (rule [ "" "events.k8s.io" ] [ "events" ] (change ++ [ "create" ]))
        (rule [ "coordination.k8s.io" ] [ "leases" ] (read ++ change ++ [ "create" ]))
      ];
    }
    {
      apiVersion = "${rbac}/v1";
      kind = "ClusterRoleBinding";
      metadata.name = "nixbench-kwok";
      roleRef = {
        apiGroup = rbac;
        kind = "ClusterRole";
        name = "nixbench-kwok";
      };
      subjects = [ ({ kind = "ServiceAccount"; } // meta) ];
    }
    {
      apiVersion = "v1";
      kind = "ConfigMap";
      metadata = meta;
      data."kwok.yaml" = configuration;
    }
    {
      apiVersion = "apps/v1";
      kind = "DaemonSet";
      metadata = meta;
      spec.selector.matchLabels.app = "kwok";
      spec.template.metadata.labels.app = "kwok";
      # This hash restarts kwok when its configuration changes, because kwok reads the configuration only when it starts.
      spec.template.metadata.annotations."nixbench.dev/files" = builtins.hashString "sha256" configuration;
      spec.template.spec = {
        hostNetwork = true;
        priorityClassName = "system-node-critical";
        serviceAccountName = meta.name;
        nodeSelector.${machineLabel} = "true";
        tolerations = [ { operator = "Exists"; } ];
        containers = [
          {
            name = "kwok";
            inherit (cfg.hollow) image;
            args = [
              "--config=/etc/kwok/kwok.yaml"
              "--manage-nodes-with-label-selector=${label}=$(NODE_NAME)"
              "--node-ip=$(NODE_IP)"
            ];
            env =
              lib.mapAttrsToList
                (name: fieldPath: {
                  inherit name;
                  valueFrom.fieldRef = { inherit fieldPath; };
                })
                {
                  NODE_IP = "status.hostIP";
                  NODE_NAME = "spec.nodeName";
                }
              ++ lib.mapAttrsToList (name: value: { inherit name value; }) {
                KUBERNETES_SERVICE_HOST = toString cfg.endpoint.address;
                KUBERNETES_SERVICE_PORT = toString cfg.endpoint.port;
              };
            volumeMounts = [
              {
                name = "config";
                mountPath = "/etc/kwok";
              }
            ];
          }
        ];
        volumes = [
          {
            name = "config";
            configMap.name = meta.name;
          }
        ];
      };
    }
  ]
  ++ lib.concatLists (
    lib.mapAttrsToList (machine: settings: map (node machine settings) (lib.range 1 settings.hollow)) machines
  );
in
{
  # interface
  options.nixbench.kubernetes.hollow = {
    count = mkOption {
      type = types.ints.unsigned;
      default = if options ? deployment.hollow then config.deployment.hollow else 0;
      defaultText = lib.literalMD "`hollow` of the role";
      readOnly = true;
      description = "Number of simulated nodes for which this worker stands, in addition to its own node.";
    };
    parallelism = mkOption {
      type = types.ints.positive;
      default = 16;
      example = 64;
      description = "Number of changes of simulated pods that kwok makes at once. If a larger number changes the results of a benchmark, kwok limits them.";
    };
    capacity = mkOption {
      type = types.attrsOf types.str;
      default = { };
      example = {
        cpu = "64";
        pods = "250";
      };
      description = ''
        Resources of each simulated node, instead of the processors and the memory of its machine and 110 pods.
        Only control planes use this option.
      '';
    };
    image = mkOption {
      type = types.str;
      default = "registry.k8s.io/kwok/kwok:v0.7.0";
      example = "registry.example.org/kwok:v0.7.0";
      description = "Image of kwok, which simulates the nodes of machines with `roles.NAME.hollow`. It must be in `images` or in a registry.";
    };
  };

  # implementation
  config = lib.mkIf (cfg.role != null) {
    nixbench.kubernetes.nodeLabels = lib.mkIf (cfg.role == "worker" && cfg.hollow.count > 0) {
      ${machineLabel} = "true";
    };
    nixbench.kubernetes.manifests = lib.mkIf (cfg.role == "control-plane" && machines != { }) [
      (json.generate "hollow.json" {
        apiVersion = "v1";
        kind = "List";
        items = objects;
      })
    ];
  };
}
