# What the SLURM modules evaluate to, as data for eval_test.go.
{
  nixpkgs,
  lib ? import (nixpkgs + "/lib"),
}:
let
  modules = ../../modules/slurm;

  system =
    {
      role,
      runtime ? facts { },
      settings ? { },
      tags ? [ ],
      container ? false,
    }:
    (import (nixpkgs + "/nixos/lib/eval-config.nix") {
      inherit lib;
      system = "x86_64-linux";
      specialArgs = {
        name = role;
        inherit runtime;
      };
      modules = [
        (modules + "/${role}.nix")
        ../../modules/deployment.nix
        ../../modules/engine.nix
        ../../modules/keys.nix
        {
          networking.hostName = "";
          system.stateVersion = "25.05";
          nixbench.slurm = settings;
          deployment.tags = tags;
          boot.isContainer = container;
        }
      ];
    }).config;

  # Facts of a controller and compute nodes.
  facts =
    {
      compute ? 2,
      controllers ? 1,
      accounting ? 0,
      address ? "192.168.222.10",
      hollow ? 0,
    }:
    let
      nodes =
        role: count: node:
        builtins.genList (i: {
          name = "${role}-${toString (i + 1)}";
          value = {
            inherit role;
            index = i + 1;
            vcpus = 2;
            memory = "4G";
          }
          // node i;
        }) count;
      all = {
        controller = nodes "controller" controllers (_: { inherit address; });
        compute = nodes "compute" compute (i: { address = "192.168.222.${toString (i + 20)}"; } // lib.optionalAttrs (hollow > 0) { inherit hollow; });
        accounting = nodes "accounting" accounting (_: { address = "192.168.222.11"; });
      };
    in
    {
      version = 1;
      cluster = "Demo.1";
      nodes = builtins.listToAttrs (all.controller ++ all.compute ++ all.accounting);
      roles = lib.mapAttrs (_: map (n: n.name)) all;
    };

  drv = args: (system args).system.build.toplevel.drvPath;
  complaints = args: map (a: a.message) (builtins.filter (a: !a.assertion) (system args).assertions);
  start = args: (system args).systemd.services.slurmd.serviceConfig.ExecStart;
in
{
  systems = map (role: drv { inherit role; }) [
    "controller"
    "compute"
    "login"
  ]
  ++ [ (drv { role = "accounting"; runtime = facts { accounting = 1; }; }) (drv { role = "controller"; runtime = facts { accounting = 1; }; }) ]
  ++ [ (drv { role = "compute"; runtime = facts { hollow = 30; }; settings.hollow = 30; }) ];

  # By the number of compute nodes, and with another address of the controller as the control.
  scaled = lib.genAttrs [ "controller" "compute" "login" ] (
    role:
    map (count: drv { inherit role; runtime = facts { compute = count; }; }) [ 1 2 40 ]
    ++ [ (drv { inherit role; runtime = facts { address = "192.168.222.99"; }; }) ]
  );

  # The same with a static list.
  static = lib.genAttrs [ "controller" "compute" "login" ] (
    role: map (count: drv { inherit role; runtime = facts { compute = count; }; settings.membership = "static"; }) [ 1 2 ]
  );
  staticConfiguration = (system {
    role = "controller";
    settings = {
      membership = "static";
      staticRoles.compute.Feature = [ "ssd" ];
      staticNodes = {
        big = { NodeAddr = "192.168.222.40"; CPUs = 64; };
        compute-2.RealMemory = 1000;
      };
    };
  }).services.slurm;
  staticContainers = (system {
    role = "controller";
    settings.membership = "static";
    container = true;
  }).services.slurm.nodeName;

  # Without a node for accounting, and with one.
  accounted = lib.genAttrs [ "controller" "compute" "login" ] (
    role: map (accounting: drv { inherit role; runtime = facts { inherit accounting; }; }) [ 0 1 ]
  );
  accounting =
    let
      dbd = system { role = "accounting"; runtime = facts { accounting = 1; }; };
      shared = system { role = "controller"; settings.accountingRole = "controller"; };
    in
    {
      inherit (dbd.services.slurm.dbdserver) dbdHost extraConfig;
      inherit (dbd.services.mysql) ensureDatabases ensureUsers;
      units = builtins.filter (n: lib.elem n [ "munged" "mysql" "slurmctld" "slurmd" "slurmdbd" ]) (
        builtins.attrNames dbd.systemd.services
      );
      controller = (system { role = "controller"; runtime = facts { accounting = 1; }; }).services.slurm.extraConfig;
      sharedHost = shared.services.slurm.dbdserver.dbdHost;
      sharedAfter = shared.systemd.services.slurmctld.after;
      inherit (shared.deployment.engine.settings) accounting;
    };

  # Machines that stand for 30 nodes.
  hollow =
    let
      controller = system { role = "controller"; runtime = facts { hollow = 30; }; };
      compute = system { role = "compute"; runtime = facts { hollow = 30; }; settings.hollow = 30; };
    in
    {
      inherit (controller.services.slurm) extraConfig;
      inherit (compute.deployment.engine.settings) hollow;
      ports = map (r: [ r.from r.to ]) compute.networking.firewall.allowedTCPPortRanges;
    };

  # Before machines exist.
  image = builtins.filter (n: lib.elem n [ "munged" "slurmctld" "slurmd" ]) (
    builtins.attrNames (system { role = "controller"; runtime = null; }).systemd.services
  );

  configuration = (system {
    role = "controller";
    settings = {
      rolePartitions = [ "compute" ];
      partitions.main.MaxTime = "01:00:00";
      settings = {
        SlurmctldParameters = [ "idle_on_node_suspend" ];
        ReturnToService = 1;
        LaunchParameters = [ "use_interactive_step" ];
        DisableRootJobs = false;
      };
    };
  }).services.slurm;

  starts = {
    plain = start { role = "compute"; };
    tagged = start {
      role = "compute";
      tags = [ "ssd" "not a word" ];
      settings.node.Gres = "gpu:1";
    };
  };
  scripts = lib.mapAttrs (_: membership: builtins.readFile (start { role = "compute"; settings = { inherit membership; }; })) {
    dynamic = "dynamic";
    static = "static";
  };

  engines = lib.genAttrs [ "controller" "compute" "login" "accounting" ] (
    role: (system { inherit role; runtime = null; tags = [ "ssd" ]; }).deployment.engine
  );

  clients = lib.genAttrs [ "controller" "compute" "login" ] (role: (system { inherit role; }).deployment.client);

  engineFiles = lib.genAttrs [ "controller" "compute" "login" ] (
    role: (system { inherit role; }).environment.etc."nixbench/engine".text or null
  );

  complaints = {
    none = complaints { role = "compute"; };
    static = complaints { role = "compute"; settings.membership = "static"; };
    staticRole = complaints { role = "compute"; settings = { membership = "static"; staticRoles.gpu = { }; }; };
    staticHollow = complaints { role = "compute"; settings = { membership = "static"; hollow = 30; }; };
    hollowController = complaints { role = "controller"; settings.hollow = 30; };
    noStaticNode = complaints { role = "controller"; runtime = facts { compute = 0; }; settings.membership = "static"; };
    noAccounting = complaints { role = "accounting"; };
    twoDatabases = complaints { role = "controller"; runtime = facts { accounting = 2; }; };
    noController = complaints { role = "compute"; runtime = facts { controllers = 0; }; };
    twoControllers = complaints { role = "controller"; runtime = facts { controllers = 2; }; };
  };
}
