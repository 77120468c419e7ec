# The first system of a machine that nixbench makes.
{
  nixpkgs,
  guest,
  switch,
}:
(import (nixpkgs + "/nixos/lib/eval-config.nix") {
  system = null;
  modules = [
    ./machine.nix
    ../../modules/guest.nix
    (
      { lib, ... }:
      {
        nixpkgs.pkgs = import ./. { inherit guest nixpkgs switch; };
        networking.hostName = "";
        networking.firewall.enable = false;
        system.stateVersion = lib.trivial.release;
      }
    )
  ];
}).config.system.build.toplevel
