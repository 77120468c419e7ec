# The audit log of the API server: who asked for what, without the contents of requests.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib) mkDefault mkOption types;
  cfg = config.nixbench.kubernetes;
  json = pkgs.formats.json { };
  log = "/var/log/kubernetes/audit";
  logFile = "${log}/audit.log";

  # One path for all policies: a control plane that joins starts its API server with the
  # cluster's settings, which may come from a node with another policy. scripts/pki.sh writes it.
  policyFile = "/etc/kubernetes/audit-policy.json";

  # A hive that sets one of these paths itself mounts that path itself.
  ownPolicy = cfg.apiServer.extraArgs.audit-policy-file == policyFile;
  ownLog = cfg.apiServer.extraArgs.audit-log-path == logFile;

  components = [
    "system:apiserver"
    "system:kube-controller-manager"
    "system:kube-proxy"
    "system:kube-scheduler"
  ];
  componentGroups = [
    "system:nodes"
    "system:serviceaccounts:kube-system"
  ];

  # Rules by their order: the first that matches decides.
  defaultPolicy = {
    apiVersion = "audit.k8s.io/v1";
    kind = "Policy";
    omitStages = [ "RequestReceived" ];
    rules = [
      {
        level = "None";
        nonResourceURLs = [
          "/healthz*"
          "/livez*"
          "/readyz*"
          "/version"
        ];
      }
      {
        level = "None";
        resources = [
          {
            group = "";
            resources = [ "events" ];
          }
          {
            group = "events.k8s.io";
            resources = [ "events" ];
          }
        ];
      }
      # Access to credentials is logged, whoever asks.
      {
        level = "Metadata";
        resources = [
          {
            group = "";
            resources = [
              "configmaps"
              "secrets"
              "serviceaccounts/token"
            ];
          }
          {
            group = "authentication.k8s.io";
            resources = [ "tokenreviews" ];
          }
        ];
      }
    ]
    # Heartbeats of components, and what they read, are most of all requests.
    ++
      lib.concatMap
        (who: [
          ({
            level = "None";
            resources = [
              {
                group = "coordination.k8s.io";
                resources = [ "leases" ];
              }
            ];
          } // who)
          ({
            level = "None";
            verbs = [
              "get"
              "list"
              "watch"
            ];
          } // who)
        ])
        [
          { users = components; }
          { userGroups = componentGroups; }
        ]
    ++ [ { level = "Metadata"; } ];
  };
in
{
  # interface
  options.nixbench.kubernetes.audit = {
    enable = mkOption {
      type = types.bool;
      default = true;
      example = false;
      description = "Whether control planes write an audit log, in ${log}.";
    };
    policy = mkOption {
      inherit (json) type;
      default = defaultPolicy;
      defaultText = lib.literalMD "the metadata of requests (who, what, when, the answer's code) without contents; no health checks, events, or heartbeats and reads of the cluster's own components";
      example = {
        apiVersion = "audit.k8s.io/v1";
        kind = "Policy";
        omitStages = [ "RequestReceived" ];
        rules = [ { level = "RequestResponse"; } ];
      };
      description = ''
        Audit policy: what is logged of which requests. With the levels `Request` and `RequestResponse` the log has
        the contents of objects, Secrets among them.
      '';
    };
    maxSize = mkOption {
      type = types.ints.positive;
      default = 100;
      example = 50;
      description = "Size in megabytes at which the log file is rotated.";
    };
    maxBackups = mkOption {
      type = types.ints.positive;
      default = 10;
      example = 3;
      description = "How many rotated files are kept. With the file in use, the log has at most (`maxBackups` + 1) × `maxSize` megabytes.";
    };
    maxAge = mkOption {
      type = types.ints.positive;
      default = 30;
      example = 7;
      description = "Days after which a rotated file is removed.";
    };
  };

  # implementation
  config = lib.mkIf (cfg.role == "control-plane" && cfg.audit.enable) {
    assertions = [
      {
        assertion = cfg.audit.policy ? rules;
        message = "nixbench.kubernetes.audit.policy has no rules, so the API server would not start; add some, such as rules = [ { level = \"Metadata\"; } ].";
      }
    ];

    nixbench.kubernetes = {
      apiServer.extraArgs = {
        audit-policy-file = mkDefault policyFile;
        audit-log-path = mkDefault logFile;
        audit-log-maxsize = mkDefault cfg.audit.maxSize;
        audit-log-maxbackup = mkDefault cfg.audit.maxBackups;
        audit-log-maxage = mkDefault cfg.audit.maxAge;
      };
      settings.cluster.apiServer = {
        extraVolumes =
          lib.optional ownPolicy {
            name = "nixbench-audit-policy";
            hostPath = policyFile;
            mountPath = policyFile;
            readOnly = true;
            pathType = "File";
          }
          ++ lib.optional ownLog {
            name = "nixbench-audit-log";
            hostPath = log;
            mountPath = log;
            pathType = "DirectoryOrCreate";
          };
        # The server reads the policy when it starts; another value restarts it.
        extraEnvs = lib.optional ownPolicy {
          name = "NIXBENCH_AUDIT_POLICY";
          value = builtins.hashString "sha256" (builtins.toJSON cfg.audit.policy);
        };
      };
      bootstrap.environment.AUDIT_POLICY = json.generate "audit-policy.json" cfg.audit.policy;
    };

    # The log names users, addresses and objects.
    systemd.tmpfiles.settings.nixbench-kubernetes-audit = {
      "/var/log/kubernetes".d.mode = "0755";
      ${log}.d.mode = "0700";
    };
  };
}
