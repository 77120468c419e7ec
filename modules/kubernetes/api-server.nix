# Switches of the API server that need files: the audit log, and encryption of what etcd
# stores.
{
  config,
  lib,
  pkgs,
  runtime,
  ...
}:
let
  inherit (lib) mkOption types;
  cfg = config.nixbench.kubernetes;
  json = pkgs.formats.json { };
  policy = json.generate "audit-policy.json" cfg.audit.policy;
  log = "/var/log/kubernetes/audit";

  # Which keys they are: with others the server has to start anew. Nothing is known of keys
  # that nixbench did not make.
  known = if runtime == null || !cfg.generateSecrets then { } else runtime.secrets or { };
  keySum = (known.kubernetes-encryption-key or { }).sha256 or "";
in
{
  # interface
  options.nixbench.kubernetes = {
    audit = {
      enable = mkOption {
        type = types.bool;
        default = false;
        example = true;
        description = "Whether control planes write an audit log, in ${log}.";
      };
      policy = mkOption {
        inherit (json) type;
        default = {
          apiVersion = "audit.k8s.io/v1";
          kind = "Policy";
          rules = [ { level = "Metadata"; } ];
        };
        example = {
          apiVersion = "audit.k8s.io/v1";
          kind = "Policy";
          omitStages = [ "RequestReceived" ];
          rules = [ { level = "RequestResponse"; } ];
        };
        description = "What is logged of which requests.";
      };
    };
    encryptionAtRest = {
      enable = mkOption {
        type = types.bool;
        default = false;
        example = true;
        description = "Whether the API server encrypts what it stores, with the key in `secrets.encryptionKey`.";
      };
      resources = mkOption {
        type = types.nonEmptyListOf types.str;
        default = [ "secrets" ];
        example = [
          "secrets"
          "configmaps"
        ];
        description = "Kinds of objects that are encrypted when they are next written.";
      };
    };
  };

  # implementation
  config = lib.mkIf (cfg.role == "control-plane") {
    assertions = [
      {
        assertion = !cfg.audit.enable || cfg.audit.policy ? rules;
        message = "nixbench.kubernetes.audit.policy has no rules, so the API server would not start; add some, such as rules = [ { level = \"Metadata\"; } ].";
      }
    ];

    nixbench.kubernetes.apiServer.extraArgs = lib.mkMerge [
      (lib.mkIf cfg.audit.enable {
        # From the store: another policy is another path, and so restarts the server.
        audit-policy-file = "${policy}";
        audit-log-path = "${log}/audit.log";
        audit-log-maxsize = lib.mkDefault 100;
        audit-log-maxbackup = lib.mkDefault 5;
      })
      (lib.mkIf cfg.encryptionAtRest.enable {
        # Beside the certificates, which the server's pod has already.
        encryption-provider-config = "/etc/kubernetes/pki/nixbench-encryption.json";
      })
    ];
    nixbench.kubernetes.settings.cluster.apiServer.extraVolumes = lib.mkIf cfg.audit.enable [
      {
        name = "audit-policy";
        hostPath = "${policy}";
        mountPath = "${policy}";
        readOnly = true;
        pathType = "File";
      }
      {
        name = "audit-log";
        hostPath = log;
        mountPath = log;
        pathType = "DirectoryOrCreate";
      }
    ];
    # Nobody reads it there, but it is a reason to restart, and tells who runs with which keys.
    nixbench.kubernetes.settings.cluster.apiServer.extraEnvs = lib.mkIf (cfg.encryptionAtRest.enable && keySum != "") [
      {
        name = "NIXBENCH_ENCRYPTION";
        value = keySum;
      }
    ];
    nixbench.kubernetes.bootstrap.environment = lib.mkIf cfg.encryptionAtRest.enable {
      ENCRYPTION_KEY = cfg.secrets.encryptionKey;
      ENCRYPTION_SUM = keySum;
      ENCRYPTED = lib.concatStringsSep " " cfg.encryptionAtRest.resources;
    };
  };
}
