# The paths of the keys and tokens that nixbench uploads to a node before a switch. The options are
# paths and not values, because evaluated values are written to the world-readable store.
{
  config,
  lib,
  runtime,
  options,
  ...
}:
let
  inherit (lib) mkOption types;
  cfg = config.nixbench.kubernetes;
  generatedSecrets = if runtime == null then { } else runtime.secrets or { };

  # Returns an option for the path of a secret. `name` is the name of the secret in the facts. `file` is the file name in the
  # default path, which is used if the facts do not contain the secret.
  secret =
    name: file: description:
    mkOption {
      type = types.path;
      default = (generatedSecrets.${name} or { }).path or "/run/nixbench/secrets/${file}";
      defaultText = lib.literalMD "`/run/nixbench/secrets/${file}`";
      example = "/run/keys/${file}";
      description = "File with ${description}.";
    };

  # The keys that nixbench uploads. An attribute name is the name of the secret in the facts.
  authority = secret: part: { inherit secret part; kind = "ca"; };
  keys = lib.optionalAttrs (cfg.role == "control-plane") (
    {
      # runtime.caHash is the hash of this authority's public key.
      kubernetes-ca-crt = {
        name = "ca.crt";
        generated = authority "cluster-ca" "certificate";
      };
      kubernetes-ca-key = {
        name = "ca.key";
        generated = authority "cluster-ca" "key";
      };
      kubernetes-front-proxy-ca-crt = {
        name = "front-proxy-ca.crt";
        generated = authority "kubernetes-front-proxy-ca" "certificate";
      };
      kubernetes-front-proxy-ca-key = {
        name = "front-proxy-ca.key";
        generated = authority "kubernetes-front-proxy-ca" "key";
      };
      kubernetes-etcd-ca-crt = {
        name = "etcd-ca.crt";
        generated = authority "kubernetes-etcd-ca" "certificate";
      };
      kubernetes-etcd-ca-key = {
        name = "etcd-ca.key";
        generated = authority "kubernetes-etcd-ca" "key";
      };
      kubernetes-sa-key = {
        name = "sa.key";
        generated = {
          secret = "kubernetes-sa";
          kind = "key-pair";
          part = "private";
        };
      };
      kubernetes-sa-pub = {
        name = "sa.pub";
        generated = {
          secret = "kubernetes-sa";
          kind = "key-pair";
          part = "public";
        };
      };
    }
    // lib.optionalAttrs cfg.encryptionAtRest.enable {
      kubernetes-encryption-key = {
        name = "encryption-key";
        generated = {
          secret = "kubernetes-encryption";
          kind = "key-ring";
          bytes = 32;
        };
      };
    }
  );
in
{
  # interface
  options.nixbench.kubernetes.secrets = {
    caCert = secret "kubernetes-ca-crt" "ca.crt" "the certificate of the cluster CA";
    caKey = secret "kubernetes-ca-key" "ca.key" "the key of the cluster CA";
    frontProxyCaCert =
      secret "kubernetes-front-proxy-ca-crt" "front-proxy-ca.crt"
        "the certificate of the front proxy's CA";
    frontProxyCaKey =
      secret "kubernetes-front-proxy-ca-key" "front-proxy-ca.key"
        "the key of the front proxy's CA";
    etcdCaCert = secret "kubernetes-etcd-ca-crt" "etcd-ca.crt" "the certificate of etcd's CA";
    etcdCaKey = secret "kubernetes-etcd-ca-key" "etcd-ca.key" "the key of etcd's CA";
    serviceAccountKey = secret "kubernetes-sa-key" "sa.key" "the key that signs service account tokens";
    serviceAccountPublicKey = secret "kubernetes-sa-pub" "sa.pub" "the public key for service account tokens";
    joinToken = secret "kubernetes-join-token" "join-token" ''
      a bootstrap token. Nodes join with it if `generateSecrets` is false. Otherwise nixbench gives each
      node that joins credentials of its own, and there is no token'';
    joinConfig = mkOption {
      type = types.path;
      internal = true;
      readOnly = true;
      default = "/run/nixbench/secrets/join.conf";
      description = "File with the kubeconfig, without a server, that nixbench writes before the node joins.";
    };
    encryptionKey =
      secret "kubernetes-encryption-key" "encryption-key"
        ''
          the key that encrypts objects in etcd: 32 random bytes in base64, or several lines
          `NAME BASE64`, in which the first key encrypts'';
    permit = secret "kubernetes-init" "kubernetes-init" ''
      any contents. If the file exists, this node may create the cluster. nixbench creates the file on one
      control plane, once. A recreated node does not have the file, and can only join'';
  };

  options.nixbench.kubernetes.generateSecrets = mkOption {
    type = types.bool;
    # true if nixbench evaluates the system, because only then the option `deployment.keys` exists.
    default = options ? deployment.keys;
    defaultText = lib.literalMD "true if nixbench deploys the node";
    example = false;
    description = ''
      Whether nixbench generates the keys of the cluster and uploads them. If false, you must write them to the
      paths in `secrets` yourself.
    '';
  };

  # The files that a control plane copies to /etc/kubernetes/pki.
  options.nixbench.kubernetes.pki = mkOption {
    type = types.attrsOf types.path;
    internal = true;
    readOnly = true;
    default = with cfg.secrets; {
      "ca.crt" = caCert;
      "ca.key" = caKey;
      "front-proxy-ca.crt" = frontProxyCaCert;
      "front-proxy-ca.key" = frontProxyCaKey;
      "etcd/ca.crt" = etcdCaCert;
      "etcd/ca.key" = etcdCaKey;
      "sa.key" = serviceAccountKey;
      "sa.pub" = serviceAccountPublicKey;
    };
    description = "Sources of the cluster's keys, by their names below /etc/kubernetes/pki.";
  };

  # implementation
  config = lib.optionalAttrs (options ? deployment.keys) {
    deployment.keys = lib.mkIf (cfg.role != null && cfg.generateSecrets) (
      lib.mapAttrs (
        _: k:
        {
          inherit (k) name generated;
          destDir = "/run/nixbench/secrets";
        }
      ) keys
    );
  };
}
