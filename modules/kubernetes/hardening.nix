# What kubeadm leaves open and a cluster does not need: profiling endpoints, old TLS, and
# containers without a seccomp profile. docs/security.md lists what holds of the CIS benchmark.
{
  config,
  lib,
  ...
}:
let
  inherit (lib) mkDefault mkIf mkOption types;
  cfg = config.nixbench.kubernetes;

  # Kubernetes' name for a version of TLS, and etcd's.
  kubernetesTLS = "VersionTLS" + lib.replaceStrings [ "." ] [ "" ] cfg.tls.minVersion;
  etcdTLS = "TLS" + cfg.tls.minVersion;
  suites = lib.concatStringsSep "," cfg.tls.cipherSuites;
  limitsSuites = cfg.tls.cipherSuites != [ ];

  # TLS 1.2 with forward secrecy and authenticated encryption. The suites of TLS 1.3 cannot be
  # chosen, and all of them have both.
  strongSuites = [
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"
  ];

  # Arguments of the API server, the controller manager and the scheduler.
  serverArgs = {
    profiling = mkDefault cfg.profiling;
    tls-min-version = mkDefault kubernetesTLS;
    tls-cipher-suites = mkIf limitsSuites (mkDefault suites);
  };
in
{
  # interface
  options.nixbench.kubernetes = {
    profiling = mkOption {
      type = types.bool;
      default = false;
      example = true;
      description = ''
        Whether the API server, the controller manager, the scheduler and the kubelet serve Go profiles below
        `/debug/pprof`, and let an administrator change their log level below `/debug/flags`. It costs nothing while
        nobody asks; a profile slows a program down and shows parts of its memory.
      '';
    };
    seccompDefault = mkOption {
      type = types.bool;
      default = true;
      example = false;
      description = ''
        Whether containers whose pod says nothing about seccomp run with the container runtime's profile
        (`RuntimeDefault`), which refuses system calls that ordinary programs do not use. Without it they run
        unconfined. Containers that run already keep what they were started with. A pod opts out with
        `securityContext.seccompProfile.type: Unconfined`.
      '';
    };
    tls = {
      minVersion = mkOption {
        type = types.enum [
          "1.2"
          "1.3"
        ];
        default = "1.3";
        example = "1.2";
        description = ''
          Oldest version of TLS that the API server, the controller manager, the scheduler, etcd and the kubelet
          accept. Clients of the API that cannot speak TLS 1.3 need `1.2`.
        '';
      };
      cipherSuites = mkOption {
        type = types.listOf types.str;
        default = lib.optionals (cfg.tls.minVersion == "1.2") strongSuites;
        defaultText = lib.literalMD "those with forward secrecy and authenticated encryption where `minVersion` is `1.2`, else `[ ]`";
        example = [ "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384" ];
        description = ''
          Cipher suites for TLS 1.2, by Go's names; `[ ]` leaves them to Go. Those of TLS 1.3 cannot be chosen.
        '';
      };
    };
  };

  # implementation
  config = mkIf (cfg.role != null) {
    assertions = [
      {
        assertion = cfg.tls.minVersion == "1.2" || !limitsSuites;
        message = "nixbench.kubernetes.tls.cipherSuites has no effect with tls.minVersion = \"1.3\", and etcd does not start with it; leave it out, or set minVersion = \"1.2\".";
      }
      {
        # etcd refuses both together, wherever they come from. The assertion above is about tls.cipherSuites.
        assertion =
          (limitsSuites && cfg.tls.minVersion == "1.3")
          || lib.elem (cfg.etcd.extraArgs.cipher-suites or "") [ "" [ ] ]
          || cfg.etcd.extraArgs.tls-min-version != "TLS1.3";
        message = "nixbench.kubernetes.etcd.extraArgs: etcd does not start with cipher-suites and tls-min-version = \"TLS1.3\"; leave cipher-suites out, or set tls-min-version = \"TLS1.2\".";
      }
      {
        assertion = !(cfg.settings.kubelet.enableSystemLogQuery or false) || cfg.settings.kubelet.enableSystemLogHandler;
        message = "nixbench.kubernetes.settings.kubelet.enableSystemLogQuery needs enableSystemLogHandler, which is off by default; set settings.kubelet.enableSystemLogHandler = true.";
      }
    ];

    nixbench.kubernetes = {
      apiServer.extraArgs = serverArgs;
      controllerManager.extraArgs = serverArgs;
      scheduler.extraArgs = serverArgs;
      etcd.extraArgs = {
        tls-min-version = mkDefault etcdTLS;
        cipher-suites = mkIf limitsSuites (mkDefault suites);
      };

      settings.kubelet = {
        # `kubectl logs`, `exec`, `attach` and `port-forward` need enableDebuggingHandlers, which stays
        # on; the kubelet asks the API server for permission before it serves any of them.
        enableProfilingHandler = mkDefault cfg.profiling;
        enableDebugFlagsHandler = mkDefault cfg.profiling;
        # The node's /var/log, with the audit log in it. `kubectl logs` does not use it.
        enableSystemLogHandler = mkDefault false;
        seccompDefault = mkDefault cfg.seccompDefault;
        tlsMinVersion = mkDefault kubernetesTLS;
        tlsCipherSuites = mkIf limitsSuites (mkDefault cfg.tls.cipherSuites);
      };
    };
  };
}
