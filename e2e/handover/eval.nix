# What modules/handover evaluates to, as data for eval_test.go.
{
  nixpkgs,
  lib ? import (nixpkgs + "/lib"),
}:
let
  system =
    modules:
    (import (nixpkgs + "/nixos/lib/eval-config.nix") {
      inherit lib;
      system = "x86_64-linux";
      specialArgs = {
        name = "node";
        runtime = {
          version = 1;
          cluster = "demo";
          nodes.node-1 = {
            role = "node";
            index = 1;
            address = "192.168.222.10";
          };
          roles.node = [ "node-1" ];
          endpoint = {
            address = "192.168.222.10";
            port = 6443;
          };
          caHash = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        };
      };
      modules = modules ++ [
        {
          networking.hostName = "";
          system.stateVersion = "25.05";
          nixbench.handover.schedulers.kubernetes.cleanup = "echo of the hive";
        }
      ];
    }).config;

  systems = {
    none = system [ ../../modules/handover ];
    guest = system [
      ../../modules/guest.nix
      { boot.isContainer = true; }
    ];
    kubernetes = system [
      ../../modules/kubernetes/worker.nix
      { nixbench.kubernetes.settings.proxy.mode = "nftables"; }
    ];
    slurm = system [
      ../../modules/slurm/compute.nix
      { nixbench.slurm.controllerRole = "node"; }
    ];
    accounting = system [
      ../../modules/slurm/accounting.nix
      { nixbench.slurm.accountingRole = "node"; }
    ];
    flux = system [
      ../../modules/flux/compute.nix
      {
        nixbench.flux.leaderRole = "node";
        nixbench.flux.computeRoles = lib.mkForce { };
      }
    ];
    both = system [
      ../../modules/kubernetes/worker.nix
      ../../modules/slurm/compute.nix
      { nixbench.slurm.controllerRole = "node"; }
    ];
  };
in
lib.mapAttrs (
  _: config:
  let
    inherit (config.systemd) services;
    unit = lib.findFirst (lib.hasPrefix "nixbench-handover") null (lib.attrNames services);
  in
  {
    drv = config.system.build.toplevel.drvPath;
    inherit unit;
    count = lib.count (lib.hasPrefix "nixbench-handover") (lib.attrNames services);
    condition = services.${unit}.unitConfig.ConditionDirectoryNotEmpty or "";
    # The services that wait for it, and fail with it.
    waiting = lib.filter (
      name: lib.elem "${unit}.service" services.${name}.requires && lib.elem "${unit}.service" services.${name}.after
    ) (lib.attrNames services);
  }
) systems
