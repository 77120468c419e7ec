# The options of the cluster: version, networks, address of the API.
#
# The system of workers must not depend on the number of nodes. So the modules for workers read only the endpoint, the networks,
# the hash of the CA and the paths of secrets from the facts (what nixbench tells modules about the cluster). They do not read the
# list of nodes.
{
  config,
  lib,
  pkgs,
  runtime,
  ...
}:
let
  inherit (lib) mkOption types;
  ip = import ./ip.nix { inherit lib; };
  cfg = config.nixbench.kubernetes;

  cidr = types.strMatching ip.cidrRegex // {
    description = "IPv4 network such as 10.244.0.0/16";
  };
  address = types.strMatching ip.addressRegex // {
    description = "IPv4 address";
  };

  facts = if runtime == null then { } else runtime;

  disjoint = a: b: {
    assertion = !ip.overlap cfg.${a} cfg.${b};
    message = "nixbench.kubernetes.${a} (${cfg.${a}}) and nixbench.kubernetes.${b} (${cfg.${b}}) overlap; give one of them another network.";
  };
in
{
  # interface
  options.nixbench.kubernetes = {
    role = mkOption {
      type = types.nullOr (
        types.enum [
          "control-plane"
          "worker"
        ]
      );
      default = null;
      example = "worker";
      description = "Role of the node in the cluster. With null, the Kubernetes modules change nothing on the node.";
    };
    package = mkOption {
      type = types.package;
      default = pkgs.kubernetes;
      defaultText = lib.literalExpression "pkgs.kubernetes";
      example = lib.literalExpression "pkgs.kubernetes";
      description = "Package with kubeadm, kubelet and kubectl.";
    };
    version = mkOption {
      type = types.strMatching "[0-9]+\\.[0-9]+\\.[0-9]+.*";
      default = cfg.package.version;
      defaultText = lib.literalExpression "config.nixbench.kubernetes.package.version";
      example = "1.34.4";
      description = "Version of the control plane's images.";
    };
    clusterName = mkOption {
      type = types.str;
      default = facts.cluster or "kubernetes";
      defaultText = lib.literalMD "the cluster's name in the facts, or `kubernetes`";
      example = "production";
      description = "Name of the cluster in kubeconfig files.";
    };
    clusterDomain = mkOption {
      type = types.str;
      default = "cluster.local";
      example = "k8s.example.org";
      description = "Domain of the cluster's services.";
    };
    nodeCidr = mkOption {
      type = cidr;
      default = (facts.network or { }).cidr or "192.168.222.0/24";
      defaultText = lib.literalMD "the network in the facts, or `192.168.222.0/24`";
      example = "192.168.77.0/24";
      description = "Network of the nodes.";
    };
    podCidr = mkOption {
      type = cidr;
      default = "10.244.0.0/16";
      example = "10.32.0.0/12";
      description = "Network of the pods. An existing cluster keeps the network that it was created with.";
    };
    serviceCidr = mkOption {
      type = cidr;
      default = "10.96.0.0/16";
      example = "10.112.0.0/16";
      description = "Network of the services. An existing cluster keeps the network that it was created with.";
    };
    endpoint = {
      address = mkOption {
        type = types.nullOr types.str;
        default = (facts.endpoint or { }).address or null;
        defaultText = lib.literalMD "the endpoint in the facts, or null without facts";
        example = "api.example.org";
        description = ''
          Address or name at which all nodes use the API: the address of the first control plane, or a virtual
          address. All certificates contain it, so it should not belong to a node that may be removed.
        '';
      };
      port = mkOption {
        type = types.port;
        default = (facts.endpoint or { }).port or 6443;
        defaultText = lib.literalMD "the port of the endpoint in the facts, or 6443";
        example = 6443;
        description = "Port of the API, at the endpoint and on each control plane.";
      };
    };
    controlPlanes = mkOption {
      type = types.listOf address;
      default = [ ];
      defaultText = lib.literalMD "the addresses of the role's nodes, if nixbench deploys the node";
      example = [
        "192.168.222.11"
        "192.168.222.12"
      ];
      description = ''
        Addresses of the control planes, through which a new control plane joins. Only control planes use this
        option. If the endpoint is the address of a control plane, this option is necessary to recreate that
        control plane.
      '';
    };
    caHash = mkOption {
      type = types.nullOr (types.strMatching "sha256:[0-9a-f]{64}");
      default = facts.caHash or null;
      defaultText = lib.literalMD "the hash in the facts, or null without facts";
      example = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
      description = "Hash of the cluster CA's public key. Joining nodes verify the API server with this hash.";
    };
    featureGates = mkOption {
      type = types.attrsOf types.bool;
      default = { };
      example = {
        InPlacePodVerticalScaling = true;
      };
      description = "Feature gates of all components.";
    };
    configured = mkOption {
      type = types.bool;
      internal = true;
      readOnly = true;
      default = cfg.role != null && cfg.endpoint.address != null && cfg.caHash != null;
      description = "Whether the node has all settings that it needs to join a cluster.";
    };
  };

  # implementation
  config = lib.mkIf (cfg.role != null) {
    assertions = [
      (disjoint "podCidr" "serviceCidr")
      (disjoint "podCidr" "nodeCidr")
      (disjoint "serviceCidr" "nodeCidr")
      {
        assertion = (ip.parse cfg.serviceCidr).size >= 16;
        message = "nixbench.kubernetes.serviceCidr (${cfg.serviceCidr}) has no room for the cluster's DNS; make it a /28 or larger.";
      }
      {
        assertion = runtime == null || cfg.endpoint.address != null;
        message = "nixbench.kubernetes.endpoint.address is not set and the facts have no endpoint; set it to the first control plane's address, or to one that moves between control planes.";
      }
      {
        assertion = runtime == null || cfg.caHash != null;
        message = "nixbench.kubernetes.caHash is not set and the facts have no caHash; set it to the hash of the cluster CA's public key (sha256:HEX).";
      }
      {
        assertion = lib.versionAtLeast cfg.version "1.31";
        message = "nixbench.kubernetes.version is ${cfg.version}, but the configuration is written for kubeadm 1.31 and later (v1beta4); use a newer nixbench.kubernetes.package.";
      }
      {
        assertion = lib.versions.majorMinor cfg.version == lib.versions.majorMinor cfg.package.version;
        message = "nixbench.kubernetes.version (${cfg.version}) is not of the minor release of nixbench.kubernetes.package (${cfg.package.version}); leave the version out, or use the package for it.";
      }
    ];

    # On a control plane, nixbench runs etcdctl to remove the etcd member of another control plane.
    environment.systemPackages = [ cfg.package ] ++ lib.optional (cfg.role == "control-plane") pkgs.etcd;
  };
}
