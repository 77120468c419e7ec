# The scheduler Volcano, with its controller and its webhooks. The objects are those of Volcano's release, without the Job that
# creates a certificate for the webhooks. Instead, nixbench-volcano.service creates that certificate. An authority that nixbench
# generates signs it.
{
  config,
  lib,
  options,
  pkgs,
  runtime,
  ...
}:
let
  inherit (lib) mkOption types;
  kubernetes = config.nixbench.kubernetes;
  cfg = kubernetes.volcano;
  secrets = if runtime == null then { } else runtime.secrets or { };
  isEnabled = cfg.enable && kubernetes.role == "control-plane";

  authority = part: file: {
    name = file;
    # The folder is on the disk and not in /run: after a reboot, the node compares the webhooks' certificate with this
    # authority.
    destDir = "/var/lib/nixbench/secrets";
    generated = {
      secret = "volcano-ca";
      kind = "ca";
      inherit part;
    };
  };

  # The images of the release, made from the package. The manifest names them.
  image =
    program:
    pkgs.dockerTools.buildLayeredImage {
      name = "docker.io/volcanosh/vc-${program}";
      tag = "v${cfg.package.version}";
      config.Entrypoint = [ "${cfg.package}/bin/vc-${program}" ];
    };

  # Change the pull policy of the images to IfNotPresent, because nodes may have no registry.
  objects = pkgs.runCommand "volcano.yaml" { nativeBuildInputs = [ pkgs.gawk ]; } ''
    awk 'BEGIN { RS = ORS = "\n---\n" }
      /name: volcano-admission-init(\n|$)/ { found = 1; next }
      { gsub(/imagePullPolicy: Always/, "imagePullPolicy: IfNotPresent"); print }
      END { exit !found }' ${cfg.manifest} > $out || {
      echo "${cfg.manifest} has no volcano-admission-init; nixbench.kubernetes.volcano.manifest must be volcano-development.yaml of a release" >&2
      exit 1
    }
  '';
in
{
  # interface
  options.nixbench.kubernetes.volcano = {
    enable = mkOption {
      type = types.bool;
      default = false;
      example = true;
      description = ''
        Whether the cluster has the scheduler Volcano, beside the default scheduler. Set it for all nodes, so that all of them load its images.
      '';
    };
    package = mkOption {
      type = types.package;
      default = (pkgs.callPackage ./packages { }).volcano;
      defaultText = lib.literalMD "the package in `modules/kubernetes/packages`";
      example = lib.literalExpression "(pkgs.callPackage ./modules/kubernetes/packages { }).volcano";
      description = "Package with Volcano's programs, and with the source of the release in `src`.";
    };
    manifest = mkOption {
      type = types.path;
      default = "${cfg.package.src}/installer/volcano-development.yaml";
      defaultText = lib.literalMD "that of `package.src`";
      example = lib.literalExpression "./volcano-development.yaml";
      description = "Manifest with Volcano's objects: `installer/volcano-development.yaml` of a release.";
    };
    images = mkOption {
      type = types.listOf types.path;
      default = map image [
        "controller-manager"
        "scheduler"
        "webhook-manager"
      ];
      defaultText = lib.literalMD "images with the programs of `package`";
      example = [ ];
      description = "Archives of the images that the manifest names. With `[ ]`, they come from a registry.";
    };
    caCert = mkOption {
      type = types.path;
      default = (secrets.volcano-ca-crt or { }).path or "/var/lib/nixbench/secrets/volcano-ca.crt";
      defaultText = lib.literalMD "`/var/lib/nixbench/secrets/volcano-ca.crt`";
      example = "/run/keys/volcano-ca.crt";
      description = "File on control planes with the certificate of the authority that signs the certificate of the webhooks.";
    };
    caKey = mkOption {
      type = types.path;
      default = (secrets.volcano-ca-key or { }).path or "/var/lib/nixbench/secrets/volcano-ca.key";
      defaultText = lib.literalMD "`/var/lib/nixbench/secrets/volcano-ca.key`";
      example = "/run/keys/volcano-ca.key";
      description = "File on control planes with the key of this authority.";
    };
  };

  # implementation
  config = lib.mkMerge [
    (lib.mkIf (cfg.enable && kubernetes.role != null) { nixbench.kubernetes.images = cfg.images; })
    (lib.mkIf isEnabled {
      nixbench.kubernetes = {
        manifests = [ objects ];
        checks =
          lib.genAttrs
            [
              "volcano-admission"
              "volcano-controllers"
              "volcano-scheduler"
            ]
            (name: {
              resource = "deployment.apps/${name}";
              namespace = "volcano-system";
              condition = "Available";
            })
          // {
            # Wait for the queue `default`, which Volcano creates some seconds after its start. Before that, it refuses all
            # jobs.
            volcano-queue.resource = "queue.scheduling.volcano.sh/default";
          };
      };
    })
    (lib.mkIf (isEnabled && kubernetes.configured) {
      systemd.services.nixbench-volcano = {
        description = "Create the certificate of Volcano's webhooks";
        wantedBy = [ "multi-user.target" ];
        after = [ "nixbench-kubernetes.service" ];
        # When nixbench generates a new authority, restart the service, so that the new authority signs a new certificate.
        restartTriggers = lib.optional (secrets ? volcano-ca-key) secrets.volcano-ca-key.sha256;
        startLimitIntervalSec = 0;
        path = [
          kubernetes.package
          pkgs.openssl
        ];
        environment = {
          HOME = "/run/nixbench-volcano";
          PORT = toString kubernetes.endpoint.port;
          CLUSTER_DOMAIN = kubernetes.clusterDomain;
          CA_CERT = cfg.caCert;
          CA_KEY = cfg.caKey;
        };
        serviceConfig = {
          # With the type oneshot, a switch would wait until the service has ended.
          Type = "simple";
          RemainAfterExit = true;
          Restart = "on-failure";
          RestartSec = 5;
          UMask = "0077";
          RuntimeDirectory = "nixbench-volcano";
          RuntimeDirectoryMode = "0700";
          ExecStart = pkgs.writeShellScript "nixbench-volcano" (builtins.readFile ./scripts/volcano.sh);
        };
      };
    })
    (lib.optionalAttrs (options ? deployment.keys) {
      # The list of keys is read when there are no facts yet, so the condition must not depend on facts.
      deployment.keys = lib.mkIf (isEnabled && kubernetes.generateSecrets) {
        volcano-ca-crt = authority "certificate" "volcano-ca.crt";
        volcano-ca-key = authority "key" "volcano-ca.key";
      };
    })
  ];
}
