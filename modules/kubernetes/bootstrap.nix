# nixbench-kubernetes.service makes the node a member of the cluster, and applies changed settings. A switch only starts the
# service. The service itself waits, retries and reports its progress.
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

  # The shell functions that all programs of this folder share. A program is this library, followed by one script.
  library = pkgs.writeText "nixbench-kubernetes-library.sh" (
    "# shellcheck shell=bash\n"
    + lib.concatMapStringsSep "\n" (part: builtins.readFile (./scripts/library + "/${part}.sh")) [
      "progress"
      "kubeadm"
      "images"
      "pki"
      "rules"
      "join"
      "control-plane"
      "static-pods"
      "upgrade"
      "reconcile"
    ]
  );
  text = script: ''
    source ${library}
    ${builtins.readFile (./scripts + "/${script}.sh")}'';
  program = script: pkgs.writeShellScript "nixbench-kubernetes-${script}" (text script);

  # The packages that NixOS adds to the PATH of every service.
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
    ++ lib.optional isControlPlane pkgs.etcd
    ++ cfg.bootstrap.path;
    environment = {
      # kubectl needs a home folder. This folder is not that of a user, where kubeadm could find a configuration of the user.
      HOME = "/run/nixbench/kubernetes";
      NODE_FILE = config.nixbench.nodeFile;
      TEMPLATE = cfg.template;
      DOCUMENTS = ./scripts/documents.jq;
      # Nodes join with the token in this file. If it is empty, they join with a kubeconfig that nixbench writes.
      JOIN_TOKEN = if cfg.generateSecrets then "" else cfg.secrets.joinToken;
      JOIN_CONFIG = cfg.secrets.joinConfig;
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
    + text "before-switch"
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
      description = "Environment variables of the unit's scripts.";
    };
    service = mkOption {
      type = types.raw;
      internal = true;
      readOnly = true;
      default = service;
      description = "Settings that the units which run scripts share.";
    };
    program = mkOption {
      type = types.raw;
      internal = true;
      readOnly = true;
      default = program;
      description = "Function that makes a program of the library and the script of this name.";
    };
    retryFor = mkOption {
      type = types.ints.unsigned;
      default = 900;
      internal = true;
      description = "For how many seconds failed attempts are repeated before the unit fails.";
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
      RETRY_FOR = toString cfg.bootstrap.retryFor;
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
      # systemd restarts the service only if its program was killed, up to 20 times in 10 minutes. After a failure, it does not
      # restart the service, because the program has already repeated its steps by itself.
      startLimitIntervalSec = 600;
      startLimitBurst = 20;
      serviceConfig = {
        # With the type oneshot, a switch would wait until the service has ended.
        Type = "simple";
        RemainAfterExit = true;
        Restart = "on-failure";
        RestartPreventExitStatus = 69;
        RestartSec = 5;
        ExecStart = program "bootstrap";
        SyslogIdentifier = "nixbench-kubernetes";
        UMask = "0077";
      };
    };

    # This check can only refuse a switch, because a check must not change anything. nixbench upgrades the cluster in a step of
    # its own before the switch. Checks run in the order of their names. The name begins with zz so that this check is the last,
    # because the first failure hides the others.
    system.preSwitchChecks.zz-nixbench-kubernetes = lib.mkIf isControlPlane "${beforeSwitch} check \"$2\"";
    nixbench.beforeSwitch = lib.mkIf isControlPlane "exec ${beforeSwitch} upgrade \"$1\"";

    environment.systemPackages = [
      (pkgs.writeShellScriptBin "nixbench-kubernetes-reset" (
        ''
          export PATH=${lib.makeBinPath (service.path ++ unitPath)}:$PATH
          CRI_SOCKET=${lib.escapeShellArg cfg.containerRuntime.socket}
        ''
        + text "reset"
      ))
    ];
  };
}
