# Hardens the Kubernetes components beyond kubeadm's defaults: it disables profiling endpoints and old versions of TLS, and sets a
# seccomp profile for containers. docs/security.md lists the recommendations of the CIS benchmark that the resulting cluster does
# not follow.
{
  config,
  lib,
  ...
}:
let
  inherit (lib) mkDefault mkIf mkOption types;
  cfg = config.nixbench.kubernetes;

  # The minimum version of TLS, as Kubernetes and as etcd write it.
  kubernetesTLS = "VersionTLS" + lib.replaceStrings [ "." ] [ "" ] cfg.tls.minVersion;
  etcdTLS = "TLS" + cfg.tls.minVersion;
  suites = lib.concatStringsSep "," cfg.tls.cipherSuites;
  limitsSuites = cfg.tls.cipherSuites != [ ];

  # The cipher suites of TLS 1.2 with forward secrecy and authenticated encryption. The suites of
  # TLS 1.3 cannot be chosen; all suites of TLS 1.3 have these two properties.
  strongSuites = [
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"
  ];

  # Arguments that the API server, the controller manager and the scheduler have in common.
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
        Whether the programs of the control plane and the kubelet serve Go profiles below `/debug/pprof`, and let
        an administrator change their log level below `/debug/flags`.
      '';
    };
    seccompDefault = mkOption {
      type = types.bool;
      default = true;
      example = false;
      description = ''
        Whether containers run with the container runtime's seccomp profile (`RuntimeDefault`) if their pod sets
        no profile. Running containers keep their profile until they are restarted.
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
        defaultText = lib.literalMD "with `minVersion = \"1.2\"` the suites with forward secrecy and authenticated encryption, otherwise `[ ]`";
        example = [ "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384" ];
        description = ''
          Cipher suites for TLS 1.2, by Go's names; `[ ]` means Go's defaults. The suites of TLS 1.3 cannot be chosen.
        '';
      };
    };
  };

  # implementation
  config = mkIf (cfg.role != null) {
    assertions = [
      {
        assertion = cfg.tls.minVersion == "1.2" || !limitsSuites;
        message = "nixbench.kubernetes.tls.cipherSuites has no effect with tls.minVersion = \"1.3\", and etcd would not start with it; remove it, or set minVersion = \"1.2\".";
      }
      {
        # etcd does not start with cipher suites together with TLS 1.3. The assertion above checks tls.cipherSuites, and this one
        # checks etcd.extraArgs.
        assertion =
          (limitsSuites && cfg.tls.minVersion == "1.3")
          || lib.elem (cfg.etcd.extraArgs.cipher-suites or "") [ "" [ ] ]
          || cfg.etcd.extraArgs.tls-min-version != "TLS1.3";
        message = "nixbench.kubernetes.etcd.extraArgs: etcd does not start with both cipher-suites and tls-min-version = \"TLS1.3\"; remove cipher-suites, or set tls-min-version = \"TLS1.2\".";
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
        # enableDebuggingHandlers stays on, because `kubectl logs`, `exec`, `attach` and `port-forward`
        # need it. The kubelet asks the API server for permission before it serves such a request.
        enableProfilingHandler = mkDefault cfg.profiling;
        enableDebugFlagsHandler = mkDefault cfg.profiling;
        # Do not serve the node's folder /var/log, which contains the audit log. `kubectl logs` uses another handler.
        enableSystemLogHandler = mkDefault false;
        seccompDefault = mkDefault cfg.seccompDefault;
        tlsMinVersion = mkDefault kubernetesTLS;
        tlsCipherSuites = mkIf limitsSuites (mkDefault cfg.tls.cipherSuites);
      };
    };
  };
}
