# The cluster of the demo: a hive of nixbench, whose machines are containers on the lab's
# hypervisor instead of virtual machines, made from the lab's image, and whose nixpkgs is the
# mini NixOS. This file has only the settings that this requires.
let
  # ./up writes the files in .state.
  lab = builtins.fromJSON (builtins.readFile ./.state/lab.json);
  demo = import (./. + "/${builtins.readFile ./.state/scheduler}.nix"); # ./kubernetes.nix or ./slurm.nix

  hive = import demo.hive {
    nixpkgs = import ./.state/nixpkgs { system = "x86_64-linux"; };
    modules = ../modules;
  };
in
hive
// {
  cluster =
    hive.cluster
    // {
      hypervisors.default = {
        uri = lab.uris.lxc;
        inherit (lab) poolPath;
      };
    }
    // demo.cluster;

  roles = builtins.mapAttrs (
    _: role: role // demo.machine // { image = builtins.readFile ./.state/image; }
  ) hive.roles;

  defaults = {
    imports = [
      hive.defaults
      demo.module
    ];
    boot.isContainer = true;
  };
}
