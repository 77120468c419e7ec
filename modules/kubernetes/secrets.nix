# Where keys and tokens are put on a node before its system is switched. Only paths:
# what is evaluated ends up in the world-readable store.
{
  config,
  lib,
  runtime,
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
        "the key for secrets in etcd: 32 random bytes in base64";
    permit = secret "kubernetes-init" "kubernetes-init" ''
      anything at all: being there allows this node to create the cluster. It is given to one control
      plane, once; a node that was made anew has none, and so can only join'';
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
}
