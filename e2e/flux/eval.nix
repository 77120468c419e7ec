# What the Flux modules evaluate to, as data for eval_test.go.
{
  nixpkgs,
  lib ? import (nixpkgs + "/lib"),
  extraModules ? [ ],
}:
let
  modules = ../../modules/flux;

  system =
    {
      role,
      runtime ? facts { },
      settings ? { },
      hollow ? 0,
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
        ../../modules/keys.nix
        {
          networking.hostName = "";
          system.stateVersion = "25.05";
          nixbench.flux = settings;
          deployment.hollow = hollow;
        }
      ]
      ++ extraModules;
    }).config;

  # Facts of a leader and compute nodes.
  facts =
    {
      compute ? 2,
      leaders ? 1,
      address ? "192.168.222.10",
      secret ? "1",
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
        leader = nodes "leader" leaders (_: { inherit address; });
        compute = nodes "compute" compute (i: { address = "192.168.222.${toString (i + 20)}"; });
      };
    in
    {
      version = 1;
      cluster = "demo";
      nodes = builtins.listToAttrs (all.leader ++ all.compute);
      roles = lib.mapAttrs (_: map (n: n.name)) all;
      secrets.flux-curve = {
        path = "/var/lib/nixbench/secrets/flux-curve.cert";
        sha256 = secret;
      };
    };

  roles = [
    "leader"
    "compute"
  ];
  drv = args: (system args).system.build.toplevel.drvPath;
  complaints = args: map (a: a.message) (builtins.filter (a: !a.assertion) (system args).assertions);
in
{
  systems = map (role: drv { inherit role; }) roles;

  # By the number of compute nodes.
  scaled = lib.genAttrs roles (
    role:
    map (compute: drv { inherit role; runtime = facts { inherit compute; }; }) [ 1 2 64 ]
  );
  # These change the systems: more nodes than the capacity, another address of the leader, another certificate.
  changed = lib.genAttrs roles (
    role:
    map (runtime: drv { inherit role runtime; }) [
      (facts { compute = 65; })
      (facts { address = "192.168.222.99"; })
      (facts { secret = "2"; })
    ]
  );

  # Before machines exist.
  image = (system { role = "leader"; runtime = null; }).systemd.services ? flux;

  settings = (system {
    role = "compute";
    settings = {
      computeRoles = {
        compute.capacity = 16;
        gpu = {
          capacity = 1;
          cores = 1;
          gpus = 4;
          properties = [ "a100" ];
        };
      };
      settings = {
        job-manager.inactive-age-limit = "7d";
        tbon.tcp_user_timeout = "5s";
      };
    };
  }).nixbench.flux.settings;

  keys = lib.genAttrs roles (
    role:
    let
      key = (system { inherit role; runtime = null; }).deployment.keys.flux-curve;
    in
    "${key.user} ${key.permissions} ${key.path} ${key.generated.kind} ${key.generated.part}"
  );
  engines = lib.genAttrs roles (
    role: (system { inherit role; runtime = null; }).deployment.engine
  );

  complaints = {
    none = complaints { role = "compute"; };
    noLeader = complaints { role = "compute"; runtime = facts { leaders = 0; }; };
    twoLeaders = complaints { role = "leader"; runtime = facts { leaders = 2; }; };
    noCores = complaints { role = "leader"; settings.computeRoles = { compute = { }; gpu = { }; }; };
    full = complaints { role = "leader"; settings.computeRoles.compute.capacity = 1; };
    hollow = complaints { role = "compute"; hollow = 100; };
  };
}
