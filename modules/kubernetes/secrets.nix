# Where keys and tokens are put on a node before its system is switched. Only paths:
# what is evaluated ends up in the world-readable store.
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
  known = if runtime == null then { } else runtime.secrets or { };

  # The name among the facts' secrets, and the file where there is nothing about it.
  secret =
    name: file: description:
    mkOption {
      type = types.path;
      default = (known.${name} or { }).path or "/run/nixbench/secrets/${file}";
      defaultText = lib.literalMD "the path of the secret `${name}` in the facts, or `/run/nixbench/secrets/${file}`";
      example = "/run/keys/${file}";
      description = "File on the node with ${description}.";
    };

  # The names are those under which the facts tell of them.
  authority = secret: part: { inherit secret part; kind = "ca"; };
  keys = {
    kubernetes-join-token = {
      name = "join-token";
      generated = {
        secret = "join-token";
        kind = "token";
      };
    };
  }
  // lib.optionalAttrs (cfg.role == "control-plane") (
    {
      # The authority whose hash every node knows as runtime.caHash.
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
    serviceAccountPublicKey = secret "kubernetes-sa-pub" "sa.pub" "the public half of that key";
    joinToken = secret "kubernetes-join-token" "join-token" "the bootstrap token";
    encryptionKey =
      secret "kubernetes-encryption-key" "encryption-key"
        ''
          the key for secrets in etcd: 32 random bytes in base64, or several keys with their names, one
          `NAME BASE64` in each line, of which the first encrypts'';
    permit = secret "kubernetes-init" "kubernetes-init" ''
      anything at all: being there allows this node to create the cluster. It is given to one control
      plane, once; a node that was made anew has none, and so can only join'';
  };

  options.nixbench.kubernetes.generateSecrets = mkOption {
    type = types.bool;
    # Without nixbench's own options the modules are those of an ordinary NixOS.
    default = options ? deployment.keys;
    defaultText = lib.literalMD "true where nixbench deploys the node";
    example = false;
    description = ''
      Whether nixbench makes the cluster's keys and its token, and brings them to the nodes
      that need them. Without it they have to be put where `secrets` says by other means.
    '';
  };

  # What goes from where to where below /etc/kubernetes/pki, for a control plane.
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
    description = "Keys of the cluster, by their place below /etc/kubernetes/pki.";
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
