# What the modules evaluate to, as data for the tests of this folder.
{ nixpkgs }:
let
  lib = import (nixpkgs + "/lib");
  modules = ../../modules;

  evaluate =
    {
      name,
      imports,
      settings,
    }:
    (import (nixpkgs + "/nixos/lib/eval-config.nix") {
      system = "x86_64-linux";
      specialArgs = {
        inherit name;
        runtime = null;
      };
      modules = imports ++ [
        {
          networking.hostName = "";
          system.stateVersion = "25.05";
        }
        settings
      ];
    }).config;

  guest =
    settings:
    evaluate {
      name = "worker";
      imports = [ (modules + "/guest.nix") ];
      inherit settings;
    };

  # A control plane of this version of Kubernetes.
  controlPlane =
    version: settings:
    evaluate {
      name = "control-plane";
      imports = [
        (modules + "/guest.nix")
        (modules + "/kubernetes/control-plane.nix")
        (
          { pkgs, ... }:
          {
            nixbench.kubernetes.package = pkgs.kubernetes // {
              inherit version;
            };
          }
        )
      ];
      inherit settings;
    };

  boot = settings: { inherit ((guest settings).boot.loader.grub) enable; };
  features = settings: {
    plain = null;
    extra = null;
  } // lib.mapAttrs' (n: v: lib.nameValuePair (if n == "experimental-features" then "plain" else "extra") v) (
    lib.filterAttrs (n: _: lib.hasSuffix "experimental-features" n) (guest settings).nix.settings
  );

  # networkd uses the first of these files that matches an interface.
  networks =
    settings:
    let
      all = (guest settings).systemd.network.networks;
    in
    map (name: {
      inherit name;
      match = if all.${name}.matchConfig ? Name then all.${name}.matchConfig.Name else all.${name}.name or null;
      type = all.${name}.matchConfig.Type or null;
      identifier = all.${name}.dhcpV4Config.ClientIdentifier or null;
    }) (lib.attrNames all);

  release =
    version: settings:
    let
      config = controlPlane version settings;
      cfg = config.nixbench.kubernetes;
    in
    {
      inherit (config) warnings;
      failed = map (a: a.message) (lib.filter (a: !a.assertion) config.assertions);
      pause = cfg.containerRuntime.pauseImage;
      controllerManager = map (a: a.name) cfg.settings.cluster.controllerManager.extraArgs;
      kinds = map (d: d.apiVersion) [
        cfg.settings.init
        cfg.settings.cluster
        cfg.settings.join
      ];
      version = cfg.settings.cluster.kubernetesVersion;
    };
in
{
  networks = {
    plain = networks { };
    user = networks {
      systemd.network.networks."30-lan" = {
        matchConfig.Name = "eth0";
        networkConfig.Address = "192.168.222.9/24";
      };
    };
    interface = networks {
      networking.interfaces.eth0.ipv4.addresses = [
        {
          address = "192.168.222.9";
          prefixLength = 24;
        }
      ];
    };
    useDHCP = networks { networking.useDHCP = true; };
  };

  grub = {
    plain = boot { };
    uefi = boot { nixbench.guest.firmware = "uefi"; };
    systemdBoot = boot { boot.loader.systemd-boot.enable = true; };
    profile = boot { boot.loader.grub.enable = lib.mkDefault false; };
    user = boot {
      nixbench.guest.firmware = "uefi";
      boot.loader.systemd-boot.enable = false;
      boot.loader.grub.enable = true;
    };
  };

  features = {
    plain = features { };
    string = features { nix.settings.experimental-features = "nix-command ca-derivations"; };
    list = features { nix.settings.experimental-features = [ "ca-derivations" ]; };
    none = features { nix.settings.extra-experimental-features = [ ]; };
  };

  releases =
    lib.genAttrs [ "1.34.4" "1.35.3" "1.36.2" "1.37.0" ] (version: release version { })
    // {
      chosen = release "1.37.0" {
        nixbench.kubernetes.containerRuntime.pauseImage = "registry.example.org/pause:3";
      };
      unset = release "1.37.0" { nixbench.kubernetes.containerRuntime.pauseImage = null; };
      cgroupV1 = release "1.34.4" { boot.kernelParams = [ "systemd.unified_cgroup_hierarchy=0" ]; };
      noCgroupV1 = release "1.35.3" { boot.kernelParams = [ "systemd.unified_cgroup_hierarchy=0" ]; };
      allowedCgroupV1 = release "1.36.2" {
        boot.kernelParams = [ "systemd.unified_cgroup_hierarchy=0" ];
        nixbench.kubernetes.settings.kubelet.failCgroupV1 = false;
      };
    };

  # The release of Kubernetes in this nixpkgs.
  own = release (import nixpkgs { system = "x86_64-linux"; }).kubernetes.version { };
}
