# The unit that makes the node a part of the cluster, and later takes over what changed.
# A switch only starts it: it waits, tries again and says how far it is by itself.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib) mkOption types;
  cfg = config.nixbench.kubernetes;
  isControlPlane = cfg.role == "control-plane";

  scripts = lib.concatMapStringsSep "\n" (part: builtins.readFile (./scripts + "/${part}.sh"));
  program = name: parts: pkgs.writeShellScript name (scripts parts);

  # What every unit has on its PATH.
  unitPath = [
    pkgs.coreutils
    pkgs.findutils
    pkgs.gnugrep
    pkgs.gnused
    pkgs.systemd
  ];

  # Shared by the programs below.
  service = {
    path = [
      cfg.package
      pkgs.conntrack-tools
      pkgs.curl
      pkgs.diffutils
      pkgs.ethtool
      pkgs.iproute2
      pkgs.iptables
      pkgs.jq
      pkgs.kmod
      pkgs.socat
      pkgs.util-linux
    ]
    ++ cfg.bootstrap.path;
    environment = {
      # kubectl looks for a home; kubeadm must not find somebody's configuration there.
      HOME = "/run/nixbench/kubernetes";
      NODE_FILE = config.nixbench.nodeFile;
      TEMPLATE = cfg.template;
      DOCUMENTS = ./scripts/documents.jq;
      JOIN_TOKEN = cfg.secrets.joinToken;
      REGISTRATION = cfg.registration;
    }
    // cfg.bootstrap.environment;
  };

  beforeSwitch = pkgs.writeShellScript "nixbench-kubernetes-before-switch" (
    lib.concatStrings (
      lib.mapAttrsToList (name: value: "export ${name}=${lib.escapeShellArg "${value}"}\n") service.environment
    )
    + ''
      export PATH=${lib.makeBinPath (service.path ++ unitPath)}
      umask 0077
    ''
    + scripts [
      "state"
      "images"
      "join"
      "pki"
      "static-pods"
      "upgrade"
      "before-switch"
    ]
  );
in
{
  # interface
  options.nixbench.kubernetes.bootstrap = {
    path = mkOption {
      type = types.listOf types.package;
      default = [ ];
      internal = true;
      description = "Packages on the unit's PATH.";
    };
    environment = mkOption {
      type = types.attrsOf (types.either types.str types.path);
      default = { };
      internal = true;
      description = "What the unit's scripts are told.";
    };
    service = mkOption {
      type = types.raw;
      internal = true;
      readOnly = true;
      default = service;
      description = "What the units that run scripts have in common.";
    };
    program = mkOption {
      type = types.raw;
      internal = true;
      readOnly = true;
      default = program;
      description = "Makes a program of scripts.";
    };
  };

  # implementation
  config = lib.mkIf cfg.configured {
    nixbench.kubernetes.bootstrap.environment = {
      ROLE = cfg.role;
      ENDPOINT = cfg.endpoint.address;
      PORT = toString cfg.endpoint.port;
      VERSION = cfg.version;
      TOKEN_TTL = cfg.tokenTtl;
      CRI_SOCKET = cfg.containerRuntime.socket;
    }
    // lib.optionalAttrs isControlPlane {
      CONTROL_PLANES = lib.concatStringsSep " " cfg.controlPlanes;
      PERMIT = cfg.secrets.permit;
      AUTHORITIES = cfg.publicAuthorities;
      PKI = pkgs.writeText "pki" (
        lib.concatStrings (lib.mapAttrsToList (to: from: "${to} ${from}\n") cfg.pki)
      );
      MANIFESTS = pkgs.writeText "manifests" (lib.concatMapStrings (m: "${m}\n") cfg.manifests);
    };

    systemd.services.nixbench-kubernetes = service // {
      description = "Make the node a part of the Kubernetes cluster";
      wantedBy = [ "multi-user.target" ];
      wants = [ "network-online.target" ];
      after = [
        "network-online.target"
        cfg.containerRuntime.unit
      ];
      startLimitIntervalSec = 0;
      serviceConfig = {
        # Started as soon as it runs: nobody waits for what it does.
        Type = "simple";
        RemainAfterExit = true;
        Restart = "on-failure";
        RestartSec = 5;
        ExecStart = program "nixbench-kubernetes" (
          [
            "state"
            "images"
            "join"
          ]
          ++ lib.optionals isControlPlane [
            "pki"
            "rules"
            "control-plane"
            "static-pods"
            "upgrade"
            "settle"
          ]
          ++ [ "bootstrap" ]
        );
        SyslogIdentifier = "nixbench-kubernetes";
        UMask = "0077";
      };
    };

    # A token that is replaced lets nobody in any more.
    systemd.paths.nixbench-kubernetes-token = lib.mkIf isControlPlane {
      description = "A new token for nodes that join";
      wantedBy = [ "paths.target" ];
      pathConfig.PathChanged = cfg.secrets.joinToken;
    };

    # nixbench starts this before nodes join.
    systemd.services.nixbench-kubernetes-token = lib.mkIf isControlPlane (
      service
      // {
        description = "Let nodes join with the token that is in place";
        unitConfig.ConditionPathExists = "/var/lib/nixbench/kubernetes/joined";
        serviceConfig = {
          Type = "oneshot";
          TimeoutStartSec = "10min";
          ExecStart = program "nixbench-kubernetes-token" [
            "state"
            "token"
          ];
          UMask = "0077";
        };
      }
    );

    system.preSwitchChecks.nixbench-kubernetes = lib.mkIf isControlPlane "${beforeSwitch} \"$2\"";

    environment.systemPackages = [
      (pkgs.writeShellScriptBin "nixbench-kubernetes-reset" (
        ''
          export PATH=${lib.makeBinPath (service.path ++ unitPath)}:$PATH
          CRI_SOCKET=${lib.escapeShellArg cfg.containerRuntime.socket}
        ''
        + scripts [
          "rules"
          "reset"
        ]
      ))
    ];
  };
}
