# Encryption of what etcd stores, by the API server.
{
  config,
  lib,
  runtime,
  ...
}:
let
  inherit (lib) mkOption types;
  cfg = config.nixbench.kubernetes;

  # Which keys they are: with others the server has to start anew. Nothing is known of keys
  # that nixbench did not make.
  known = if runtime == null || !cfg.generateSecrets then { } else runtime.secrets or { };
  keySum = (known.kubernetes-encryption-key or { }).sha256 or "";
in
{
  # interface
  options.nixbench.kubernetes.encryptionAtRest = {
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

  # implementation
  config = lib.mkIf (cfg.role == "control-plane" && cfg.encryptionAtRest.enable) {
    nixbench.kubernetes = {
      # Beside the certificates, which the server's pod has already.
      apiServer.extraArgs.encryption-provider-config = "/etc/kubernetes/pki/nixbench-encryption.json";
      # Nobody reads it there, but it is a reason to restart, and tells who runs with which keys.
      settings.cluster.apiServer.extraEnvs = lib.mkIf (keySum != "") [
        {
          name = "NIXBENCH_ENCRYPTION";
          value = keySum;
        }
      ];
      bootstrap.environment = {
        ENCRYPTION_KEY = cfg.secrets.encryptionKey;
        ENCRYPTION_SUM = keySum;
        ENCRYPTED = lib.concatStringsSep " " cfg.encryptionAtRest.resources;
      };
    };
  };
}
