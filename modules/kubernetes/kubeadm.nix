# The configuration documents of kubeadm (v1beta4), the kubelet and kube-proxy. On a node,
# scripts/documents.jq adds the values of that node, such as its name.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib) mkDefault mkOption types;
  ip = import ./ip.nix { inherit lib; };
  cfg = config.nixbench.kubernetes;
  json = pkgs.formats.json { };

  scalar = types.oneOf [
    types.str
    types.int
    types.bool
  ];
  text = v: if lib.isBool v then lib.boolToString v else toString v;

  # Converts arguments to the format of kubeadm, [ { name = "v"; value = "2"; } ]. A list of values becomes several items
  # with the same name.
  toArgs =
    args:
    lib.concatLists (
      lib.mapAttrsToList (name: value: map (v: { inherit name; value = text v; }) (lib.toList value)) args
    );

  extraArgs =
    component: example:
    mkOption {
      type = types.attrsOf (types.either scalar (types.listOf scalar));
      default = { };
      inherit example;
      description = "Additional arguments of ${component}, without dashes. A list sets an argument several times.";
    };

  document =
    kind: example:
    mkOption {
      inherit (json) type;
      default = { };
      inherit example;
      description = "Fields of ${kind}, merged with those of other options.";
    };

  featureGates = lib.concatStringsSep "," (
    lib.mapAttrsToList (name: on: "${name}=${lib.boolToString on}") cfg.featureGates
  );
  gates = lib.optionalAttrs (cfg.featureGates != { }) { feature-gates = featureGates; };

  # kubeadm mounts the folder with the certificate authorities of the node into the pods of the
  # API server and the controller manager. On NixOS the files in that folder are links into the
  # store, which is not mounted. This volume has the same name as kubeadm's volume, `ca-certs`,
  # and replaces it.
  authorityVolumes = lib.optional (cfg.publicAuthorities != "") {
    name = "ca-certs";
    hostPath = "/etc/kubernetes/authorities";
    mountPath = "/etc/ssl/certs";
    readOnly = true;
    pathType = "Directory";
  };

  registration = {
    criSocket = mkDefault cfg.containerRuntime.socket;
    imagePullPolicy = mkDefault "IfNotPresent";
  };
in
{
  # interface
  options.nixbench.kubernetes = {
    apiServer.extraArgs = extraArgs "the API server" { audit-log-maxage = 30; };
    apiServer.certSANs = mkOption {
      type = types.listOf types.str;
      default = [ ];
      example = [ "api.example.org" ];
      description = "Additional names and addresses in the API server's certificate.";
    };
    controllerManager.extraArgs = extraArgs "the controller manager" { node-monitor-grace-period = "20s"; };
    scheduler.extraArgs = extraArgs "the scheduler" { v = 2; };
    etcd.extraArgs = extraArgs "etcd" { quota-backend-bytes = 4294967296; };

    tokenTtl = mkOption {
      type = types.strMatching "([0-9]+(h|m|s))+";
      default = "24h0m0s";
      example = "1h0m0s";
      description = ''
        Time during which nodes can join with `secrets.joinToken` after the creation of the cluster.
      '';
    };

    settings = {
      init = document "kubeadm's InitConfiguration" { timeouts.controlPlaneComponentHealthCheck = "10m"; };
      join = document "kubeadm's JoinConfiguration" { timeouts.tlsBootstrap = "10m"; };
      cluster = document "kubeadm's ClusterConfiguration" { certificateValidityPeriod = "17520h"; };
      kubelet = document "KubeletConfiguration" { maxPods = 60; };
      proxy = document "KubeProxyConfiguration" { mode = "nftables"; };
    };

    publicAuthorities = mkOption {
      type = types.either types.path types.str;
      internal = true;
      readOnly = true;
      default = config.environment.etc."ssl/certs/ca-certificates.crt".source or "";
      description = "Certificate authorities that the API server trusts when it contacts other servers, such as an OIDC issuer.";
    };

    template = mkOption {
      type = types.package;
      internal = true;
      readOnly = true;
      # Workers have only the document for `join`, so that the system of a worker does not change when another document changes.
      default = json.generate "kubeadm.json" (
        if cfg.role == "worker" then { inherit (cfg.settings) join; } else cfg.settings
      );
      description = "The documents for kubeadm, in one file.";
    };
  };

  # implementation
  config = lib.mkIf (cfg.role != null) {
    nixbench.kubernetes.settings = {
      init = {
        apiVersion = "kubeadm.k8s.io/v1beta4";
        kind = "InitConfiguration";
        localAPIEndpoint.bindPort = cfg.endpoint.port;
        nodeRegistration = registration;
      };
      join = {
        apiVersion = "kubeadm.k8s.io/v1beta4";
        kind = "JoinConfiguration";
        # kubeadm gets a short time limit. nixbench-kubernetes.service repeats the join, and reports between two attempts what it
        # waits for.
        timeouts.discovery = mkDefault "30s";
        discovery =
          if cfg.generateSecrets then
            { file.kubeConfigPath = "/run/nixbench/kubernetes/join.conf"; }
          else
            {
              bootstrapToken.apiServerEndpoint = mkDefault "${toString cfg.endpoint.address}:${toString cfg.endpoint.port}";
              bootstrapToken.caCertHashes = lib.optional (cfg.caHash != null) cfg.caHash;
            };
        nodeRegistration = registration;
      }
      // lib.optionalAttrs (cfg.role == "control-plane") {
        controlPlane.localAPIEndpoint.bindPort = cfg.endpoint.port;
      };
      cluster = {
        apiVersion = "kubeadm.k8s.io/v1beta4";
        kind = "ClusterConfiguration";
        kubernetesVersion = "v${cfg.version}";
        inherit (cfg) clusterName;
        controlPlaneEndpoint = "${toString cfg.endpoint.address}:${toString cfg.endpoint.port}";
        networking = {
          podSubnet = cfg.podCidr;
          serviceSubnet = cfg.serviceCidr;
          dnsDomain = cfg.clusterDomain;
        };
        apiServer = {
          extraArgs = toArgs (gates // cfg.apiServer.extraArgs);
          inherit (cfg.apiServer) certSANs;
          extraVolumes = authorityVolumes;
        };
        controllerManager = {
          # kubeadm up to 1.35 mounts the folder of FlexVolume plugins into the pod of the controller manager. kubeadm's default
          # for it is a folder below /usr, which NixOS does not use. Later releases of kubeadm mount no such folder.
          extraArgs = toArgs (
            lib.optionalAttrs (lib.versionOlder cfg.version "1.36") {
              flex-volume-plugin-dir = cfg.settings.kubelet.volumePluginDir;
            }
            // gates
            // cfg.controllerManager.extraArgs
          );
          extraVolumes = authorityVolumes;
        };
        scheduler.extraArgs = toArgs (gates // cfg.scheduler.extraArgs);
        etcd.local.dataDir = mkDefault "/var/lib/etcd";
        etcd.local.extraArgs = toArgs cfg.etcd.extraArgs;
      };
      # The kubelet's configuration must contain all values that kubeadm would add, because the kubelet reads this file, and
      # not the configuration that kubeadm stores in the cluster.
      kubelet = {
        apiVersion = "kubelet.config.k8s.io/v1beta1";
        kind = "KubeletConfiguration";
        authentication = {
          anonymous.enabled = mkDefault false;
          webhook.enabled = mkDefault true;
          x509.clientCAFile = mkDefault "/etc/kubernetes/pki/ca.crt";
        };
        authorization.mode = mkDefault "Webhook";
        cgroupDriver = mkDefault "systemd";
        clusterDNS = mkDefault [ (ip.nth cfg.serviceCidr 10) ];
        clusterDomain = mkDefault cfg.clusterDomain;
        containerRuntimeEndpoint = mkDefault cfg.containerRuntime.socket;
        healthzBindAddress = mkDefault "127.0.0.1";
        healthzPort = mkDefault 10248;
        rotateCertificates = mkDefault true;
        staticPodPath = mkDefault "/etc/kubernetes/manifests";
        volumePluginDir = mkDefault "/var/lib/kubelet/volumeplugins";
      }
      // lib.optionalAttrs config.services.resolved.enable {
        # Pods get this file as their resolv.conf. The node's /etc/resolv.conf contains the loopback address of the node's
        # resolver, which pods cannot reach.
        resolvConf = mkDefault "/run/systemd/resolve/resolv.conf";
      }
      // lib.optionalAttrs (cfg.featureGates != { }) { inherit (cfg) featureGates; };
      proxy = {
        apiVersion = "kubeproxy.config.k8s.io/v1alpha1";
        kind = "KubeProxyConfiguration";
        clusterCIDR = mkDefault cfg.podCidr;
      }
      // lib.optionalAttrs (cfg.featureGates != { }) { inherit (cfg) featureGates; };
    };
  };
}
