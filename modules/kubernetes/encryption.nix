# Encryption at rest: the API server encrypts objects before it stores them in etcd.
{
  config,
  lib,
  runtime,
  ...
}:
let
  inherit (lib) mkOption types;
  cfg = config.nixbench.kubernetes;

  # The generated secrets in the facts. The hash of the encryption keys is among them, so that the API server restarts when the
  # keys change. They are empty if nixbench does not generate the keys.
  generatedSecrets = if runtime == null || !cfg.generateSecrets then { } else runtime.secrets or { };
  keySum = (generatedSecrets.kubernetes-encryption-key or { }).sha256 or "";
in
{
  # interface
  options.nixbench.kubernetes.encryptionAtRest = {
    enable = mkOption {
      type = types.bool;
      default = false;
      example = true;
      description = "Whether the API server encrypts objects in etcd, with the key in `secrets.encryptionKey`.";
    };
    resources = mkOption {
      type = types.nonEmptyListOf types.str;
      default = [ "secrets" ];
      example = [
        "secrets"
        "configmaps"
      ];
      description = "Kinds of objects that are encrypted. An existing object is encrypted when it is written again.";
    };
  };

  # implementation
  config = lib.mkIf (cfg.role == "control-plane" && cfg.encryptionAtRest.enable) {
    nixbench.kubernetes = {
      # The file is in the folder of the certificates, because the API server's pod already mounts
      # that folder.
      apiServer.extraArgs.encryption-provider-config = "/etc/kubernetes/pki/nixbench-encryption.json";
      # A change of the keys changes this variable of the API server's pod, and so restarts the API server. The API server does
      # not read the variable. nixbench reads it to see which keys an API server uses.
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
