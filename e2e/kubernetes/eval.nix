# What the Kubernetes modules evaluate to, as data for eval_test.go.
{
  nixpkgs,
  lib ? import (nixpkgs + "/lib"),
}:
let
  modules = ../../modules/kubernetes;

  system =
    {
      role,
      runtime ? null,
      settings ? { },
      name ? role,
      deployed ? false,
    }:
    (import (nixpkgs + "/nixos/lib/eval-config.nix") {
      inherit lib;
      system = "x86_64-linux";
      specialArgs = { inherit name runtime; };
      modules = [
        (modules + "/${role}.nix")
        {
          networking.hostName = "";
          system.stateVersion = "25.05";
          nixbench.kubernetes = settings;
        }
      ]
      ++ lib.optional deployed ../../modules/deployment.nix;
    }).config;

  # Facts of one control plane and `workers` workers.
  facts = workers: {
    version = 1;
    cluster = "demo";
    nodes = {
      control-plane-1 = {
        role = "control-plane";
        index = 1;
        address = "192.168.222.10";
      };
    }
    // builtins.listToAttrs (
      builtins.genList (i: {
        name = "worker-${toString (i + 1)}";
        value = {
          role = "worker";
          index = i + 1;
          address = "192.168.222.${toString (i + 20)}";
        };
      }) workers
    );
    roles = {
      control-plane = [ "control-plane-1" ];
      worker = builtins.genList (i: "worker-${toString (i + 1)}") workers;
    };
    endpoint = {
      address = "192.168.222.10";
      port = 6443;
    };
    caHash = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    secrets.kubernetes-join-token = {
      path = "/run/elsewhere/token";
      sha256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    };
  };

  drv = args: (system args).system.build.toplevel.drvPath;
  complaints = config: map (a: a.message) (builtins.filter (a: !a.assertion) config.assertions);
  wrong =
    role: settings:
    complaints (system {
      inherit role settings;
      runtime = facts 1;
    });
  # The same, of a node that nixbench deploys.
  wrongThere =
    settings:
    complaints (system {
      role = "worker";
      inherit settings;
      runtime = facts 1;
      deployed = true;
    });
  marked =
    marks:
    system {
      role = "worker";
      runtime = facts 1;
      settings = marks;
      deployed = true;
    };
  units =
    config: builtins.filter (n: lib.hasPrefix "nixbench-kubernetes" n) (builtins.attrNames config.systemd.services);
  cp =
    settings:
    system {
      role = "control-plane";
      runtime = facts 2;
      inherit settings;
    };
  args = list: map (a: "${a.name}=${a.value}") list;
in
{
  # Systems that together contain all scripts of the modules.
  systems = map (args: drv ({ runtime = facts 2; deployed = true; } // args)) [
    {
      role = "control-plane";
      settings = {
        encryptionAtRest.enable = true;
        volcano = {
          enable = true;
          manifest = builtins.toFile "volcano.yaml" "kind: Job\nmetadata:\n  name: volcano-admission-init\n---\nkind: Namespace\n";
          images = [ ];
        };
      };
    }
    {
      role = "worker";
      settings = {
        cni.name = "flannel";
        containerRuntime.name = "cri-o";
      };
    }
  ];

  # Before machines exist.
  image = {
    worker = drv { role = "worker"; };
    control-plane = drv { role = "control-plane"; };
    units = units (system { role = "worker"; });
  };

  # Closures by the number of workers, and with another endpoint as the control.
  worker = map (
    n:
    drv {
      role = "worker";
      runtime = facts n;
    }
  ) [ 0 2 30 ];
  control-plane = map (
    n:
    drv {
      role = "control-plane";
      runtime = facts n;
    }
  ) [ 0 2 30 ];
  moved = drv {
    role = "worker";
    runtime = facts 2 // {
      endpoint = {
        address = "192.168.222.99";
        port = 6443;
      };
    };
  };
  # Settings of control planes do not change a worker's system.
  cousin = drv {
    role = "worker";
    runtime = facts 2;
    settings.apiServer.extraArgs.v = 4;
  };

  units = units (cp { });
  # In the order in which NixOS runs them, with its own check and one of a user.
  checks = builtins.attrNames (
    (cp { }).system.preSwitchChecks
    // {
      switchInhibitors = "";
      zpool = "";
    }
  );
  template = (cp {
    apiServer.extraArgs.v = [
      1
      2
    ];
    featureGates.Foo = true;
    encryptionAtRest.enable = true;
    settings.kubelet.maxPods = 60;
  }).nixbench.kubernetes.settings;
  apiServer = args (cp {
    apiServer.extraArgs.v = [
      1
      2
    ];
    featureGates.Foo = true;
    encryptionAtRest.enable = true;
  }).nixbench.kubernetes.settings.cluster.apiServer.extraArgs;
  # What hardening adds, by default, with older clients, and with everything off.
  hardening =
    let
      told =
        settings:
        let
          kubernetes = (cp settings).nixbench.kubernetes;
          inherit (kubernetes.settings) cluster;
        in
        {
          apiServer = args cluster.apiServer.extraArgs;
          controllerManager = args cluster.controllerManager.extraArgs;
          scheduler = args cluster.scheduler.extraArgs;
          etcd = args cluster.etcd.local.extraArgs;
          volumes = map (v: v.name) cluster.apiServer.extraVolumes;
          envs = map (e: e.name) (cluster.apiServer.extraEnvs or [ ]);
          inherit (kubernetes.settings) kubelet;
        };
    in
    {
      default = told { };
      older = told { tls.minVersion = "1.2"; };
      off = told {
        profiling = true;
        audit.enable = false;
        seccompDefault = false;
        tls.minVersion = "1.2";
        tls.cipherSuites = [ ];
      };
      theirs = told {
        apiServer.extraArgs = {
          profiling = true;
          audit-log-maxsize = 7;
          tls-min-version = "VersionTLS12";
        };
        audit.maxAge = 3;
        settings.kubelet.seccompDefault = false;
      };
      # A hive that has had an audit log of its own before.
      theirAudit = told {
        apiServer.extraArgs = {
          audit-policy-file = "/etc/kubernetes/theirs.yaml";
          audit-log-path = "/var/log/theirs.log";
        };
        settings.cluster.apiServer.extraVolumes =
          map
            (name: {
              inherit name;
              hostPath = "/theirs";
              mountPath = "/theirs";
            })
            [
              "audit-policy"
              "audit-log"
            ];
      };
      # The default policy with another log file.
      stdout = told { apiServer.extraArgs.audit-log-path = "-"; };
      # The same path for another policy, and a reason to restart.
      policies =
        map
          (
            rules:
            let
              inherit ((cp { audit.policy = { inherit rules; }; }).nixbench.kubernetes.settings.cluster) apiServer;
            in
            {
              args = args apiServer.extraArgs;
              env = (builtins.head apiServer.extraEnvs).value;
            }
          )
          [
            [ { level = "Metadata"; } ]
            [ { level = "Request"; } ]
          ];
      # A worker has no audit log.
      worker = (system { role = "worker"; runtime = facts 1; }).nixbench.kubernetes.settings.kubelet;
    };
  # The defaults of latency.nix, which only control planes have.
  latency = {
    worker = (system { role = "worker"; runtime = facts 1; }).nixbench.kubernetes.settings.join ? patches;
    theirs =
      let
        kubernetes =
          (cp {
            settings.init.patches.directory = "/theirs";
            controllerManager.extraArgs.kube-api-qps = 7;
          }).nixbench.kubernetes;
      in
      [ "patches=${kubernetes.settings.init.patches.directory}" ]
      ++ args kubernetes.settings.cluster.controllerManager.extraArgs;
  };
  # Labels and taints are not part of a system; nixbench reads them from the evaluation.
  marks = {
    systems = map (marks: (marked marks).system.build.toplevel.drvPath) [
      { }
      {
        nodeLabels."example.org/a" = "b";
        nodeTaints = [ { key = "a"; } ];
      }
    ];
    joins =
      let
        env = (marked { }).systemd.services.nixbench-kubernetes.environment;
      in
      {
        token = env.JOIN_TOKEN;
        config = env.JOIN_CONFIG;
      };
    engine =
      (marked {
        nodeLabels."node-role.kubernetes.io/worker" = "";
        nodeLabels.a = "b";
        nodeTaints = [ { key = "a"; } ];
      }).deployment;
  };
  timer = (cp { }).systemd.timers.nixbench-kubernetes-certificates.timerConfig.OnCalendar;
  kept = units (cp { certificates.renew = false; });
  token = (cp { }).systemd.services.nixbench-kubernetes.environment.JOIN_TOKEN;
  # With each of these keys, and without facts about any.
  keyed =
    let
      ring =
        role: keys:
        system {
          inherit role;
          runtime = lib.recursiveUpdate (facts 1) {
            secrets.kubernetes-encryption-key = {
              path = "/run/keys/ring";
              sha256 = builtins.hashString "sha256" keys;
            };
          };
          settings = {
            encryptionAtRest.enable = true;
            generateSecrets = true;
          };
        };
      told = config: {
        envs = builtins.filter (e: e.name == "NIXBENCH_ENCRYPTION") config.nixbench.kubernetes.settings.cluster.apiServer.extraEnvs;
        sum = config.systemd.services.nixbench-kubernetes.environment.ENCRYPTION_SUM;
      };
    in
    {
      some = told (ring "control-plane" "some");
      own = told (cp { encryptionAtRest.enable = true; });
      workers = map (keys: (ring "worker" keys).system.build.toplevel.drvPath) [
        "some"
        "others"
      ];
    };
  firewall = {
    control-plane = map (r: r.from) (cp { }).networking.firewall.allowedTCPPortRanges;
    flannel = (cp { cni.name = "flannel"; }).networking.firewall.allowedUDPPorts;
    routed =
      (cp {
        cni.name = "flannel";
        cni.flannel.settings.Backend.Type = "host-gw";
      }).networking.firewall.allowedUDPPorts;
  };
  kinds = map (cni: drv {
    role = "control-plane";
    runtime = facts 1;
    settings.cni.name = cni;
  }) [ "bridge" "flannel" "none" ];
  crio = drv {
    role = "worker";
    runtime = facts 1;
    settings.containerRuntime.name = "cri-o";
  };
  # Further schedulers: one for gangs, with settings of the hive, and a plain one.
  schedulers =
    let
      settings.schedulers = {
        gangs = {
          coscheduling.enable = true;
          coscheduling.permitWaitingTimeSeconds = 20;
          profile.plugins.multiPoint.enabled = [ { name = "Theirs"; } ];
          settings.parallelism = 4;
        };
        plain.replicas = 2;
      };
      told = role: system {
        inherit role settings;
        runtime = facts 2;
        deployed = true;
      };
      inherit (told "control-plane") deployment nixbench;
    in
    {
      images = lib.mapAttrs (_: s: s.image) nixbench.kubernetes.schedulers;
      config = nixbench.kubernetes.schedulers.gangs.settings;
      inherit (deployment.engine.settings) checks;
      manifests = map (m: m.name) nixbench.kubernetes.manifests;
      # A worker has no part of them.
      worker = (told "worker").system.build.toplevel.drvPath == (system {
        role = "worker";
        runtime = facts 2;
        deployed = true;
      }).system.build.toplevel.drvPath;
    };

  # Volcano, with a manifest of the hive and without a package.
  volcano =
    let
      settings.volcano = {
        enable = true;
        manifest = ./eval.nix;
        images = [ ];
      };
      told =
        role: keys:
        system {
          inherit role settings;
          runtime = facts 1 // {
            secrets.volcano-ca-key = {
              path = "/run/keys/volcano-ca.key";
              sha256 = builtins.hashString "sha256" keys;
            };
          };
          deployed = true;
        };
      head = told "control-plane" "a";
    in
    {
      checks = lib.mapAttrs (_: c: c.resource) head.deployment.engine.settings.checks;
      keys = lib.filterAttrs (name: _: lib.hasPrefix "volcano" name) (
        lib.mapAttrs (_: k: "${k.path} ${k.generated.kind} ${k.generated.part}") head.deployment.keys
      );
      authority = {
        inherit (head.systemd.services.nixbench-volcano.environment) CA_KEY CA_CERT;
      };
      # A new authority restarts the unit of control planes, and changes no worker.
      changed = map (role: (told role "a").system.build.toplevel.drvPath != (told role "b").system.build.toplevel.drvPath) [
        "control-plane"
        "worker"
      ];
      workerKeys = builtins.attrNames (told "worker" "a").deployment.keys;
    };

  complaints = {
    none = wrong "worker" { };
    overlap = wrong "worker" { serviceCidr = "10.244.128.0/20"; };
    small = wrong "worker" { podCidr = "10.244.0.0/20"; };
    fewer = wrong "worker" {
      podCidr = "10.244.0.0/20";
      settings.kubelet.maxPods = 10;
    };
    wide = wrong "worker" { nodeCidr = "172.16.0.0/16"; };
    label = wrong "worker" { nodeLabels."node-role.kubernetes.io/worker" = ""; };
    reserved = wrongThere { nodeLabels."kubernetes.io/hostname" = "a"; };
    granted = wrongThere { nodeLabels."node-role.kubernetes.io/worker" = ""; };
    key = wrong "worker" { nodeLabels."-a" = "b"; };
    domain = wrong "worker" { nodeLabels."Example.org/a/b" = "b"; };
    value = wrong "worker" { nodeLabels.a = "b c"; };
    taint = wrong "worker" { nodeTaints = [ { key = "a"; value = "b,c"; } ]; };
    condition = wrong "worker" { nodeTaints = [ { key = "node.kubernetes.io/not-ready"; } ]; };
    twice = wrong "worker" {
      nodeTaints = [
        { key = "a"; value = "b"; }
        { key = "a"; }
      ];
    };
    effects = wrong "worker" {
      nodeTaints = [
        { key = "a"; }
        { key = "a"; effect = "NoExecute"; }
      ];
    };
    rotation = wrong "worker" { settings.kubelet.rotateCertificates = false; };
    byHand = wrong "worker" {
      settings.kubelet.rotateCertificates = false;
      certificates.renew = false;
    };
    early = wrong "control-plane" { certificates.renewBefore = 365; };
    short = wrong "control-plane" { settings.cluster.certificateValidityPeriod = "720h0m0s"; };
    fine = wrong "worker" {
      nodeLabels = {
        "node.kubernetes.io/pool" = "a";
        "example.org/a" = "b";
        plain = "c";
      };
    };
    old = wrong "control-plane" { version = "1.30.2"; };
    other = wrong "control-plane" { version = "1.33.1"; };
    audit = wrong "control-plane" {
      audit.enable = true;
      audit.policy.kind = "Policy";
    };
    suites = wrong "worker" { tls.cipherSuites = [ "TLS_RSA_WITH_AES_128_CBC_SHA" ]; };
    etcdSuites = wrong "control-plane" {
      etcd.extraArgs.cipher-suites = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256";
    };
    etcdTLS = wrong "control-plane" {
      tls.minVersion = "1.2";
      etcd.extraArgs.tls-min-version = "TLS1.3";
    };
    etcdOlder = wrong "control-plane" {
      etcd.extraArgs.cipher-suites = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256";
      etcd.extraArgs.tls-min-version = "TLS1.2";
    };
    logQuery = wrong "worker" { settings.kubelet.enableSystemLogQuery = true; };
    logHandler = wrong "worker" {
      settings.kubelet.enableSystemLogQuery = true;
      settings.kubelet.enableSystemLogHandler = true;
    };
    older = wrong "worker" { tls.minVersion = "1.2"; };
    ports = wrong "worker" {
      nodePorts.from = 32000;
      nodePorts.to = 31000;
    };
    scheduler = wrong "control-plane" { schedulers.default-scheduler = { }; };
    schedulerName = wrong "control-plane" { schedulers.Gangs = { }; };
    endpoint = complaints (system {
      role = "worker";
      runtime = builtins.removeAttrs (facts 1) [
        "caHash"
        "endpoint"
      ];
    });
  };
}
