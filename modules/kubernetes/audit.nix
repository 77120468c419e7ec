# The audit log of the API server. By default it contains the metadata of requests (user,
# action, object), without the contents of the requests.
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

  # The path of the policy file, which is the same on all nodes. A new control plane starts its API server with the settings that
  # are stored in the cluster, and a node with another policy may have written them. scripts/library/pki.sh writes the file.
  policyFile = "/etc/kubernetes/audit-policy.json";

  # Whether the API server uses the file policyFile. If the hive sets another path, the hive must also mount that path into the
  # pod of the API server.
  usesPolicyFile = cfg.apiServer.extraArgs.audit-policy-file == policyFile;
  usesLogFile = cfg.apiServer.extraArgs.audit-log-path == logFile;

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

  # The first rule that matches a request applies.
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
      # Access to credentials is logged for all users, including the cluster's own components.
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
    # Leave out heartbeats and reads of the cluster's own components, which are most of the requests.
    ++
      lib.concatMap
        (subject: [
          ({
            level = "None";
            resources = [
              {
                group = "coordination.k8s.io";
                resources = [ "leases" ];
              }
            ];
          } // subject)
          ({
            level = "None";
            verbs = [
              "get"
              "list"
              "watch"
            ];
          } // subject)
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
      defaultText = lib.literalMD "the metadata of requests (user, action, object, time, status code), without contents; no health checks, no events, and no heartbeats and reads of the cluster's own components";
      example = {
        apiVersion = "audit.k8s.io/v1";
        kind = "Policy";
        omitStages = [ "RequestReceived" ];
        rules = [ { level = "RequestResponse"; } ];
      };
      description = ''
        Audit policy. With the levels `Request` and `RequestResponse` the log contains the contents of objects,
        including Secrets.
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
      description = "Number of rotated files that are kept. Together with the current file, the log has at most (`maxBackups` + 1) × `maxSize` megabytes.";
    };
    maxAge = mkOption {
      type = types.ints.positive;
      default = 30;
      example = 7;
      description = "Number of days after which a rotated file is removed.";
    };
  };

  # implementation
  config = lib.mkIf (cfg.role == "control-plane" && cfg.audit.enable) {
    assertions = [
      {
        assertion = cfg.audit.policy ? rules;
        message = "nixbench.kubernetes.audit.policy has no rules, so the API server would not start; add at least one, such as rules = [ { level = \"Metadata\"; } ].";
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
          lib.optional usesPolicyFile {
            name = "nixbench-audit-policy";
            hostPath = policyFile;
            mountPath = policyFile;
            readOnly = true;
            pathType = "File";
          }
          ++ lib.optional usesLogFile {
            name = "nixbench-audit-log";
            hostPath = log;
            mountPath = log;
            pathType = "DirectoryOrCreate";
          };
        # The value is a hash of the policy. A change of the policy changes this variable, and so restarts the API server, which
        # reads the policy only when it starts.
        extraEnvs = lib.optional usesPolicyFile {
          name = "NIXBENCH_AUDIT_POLICY";
          value = builtins.hashString "sha256" (builtins.toJSON cfg.audit.policy);
        };
      };
      bootstrap.environment.AUDIT_POLICY = json.generate "audit-policy.json" cfg.audit.policy;
    };

    # Only root may read the log, because it contains users, addresses and names of objects.
    systemd.tmpfiles.settings.nixbench-kubernetes-audit = {
      "/var/log/kubernetes".d.mode = "0755";
      ${log}.d.mode = "0700";
    };
  };
}
