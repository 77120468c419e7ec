# Your Colmena hive goes here as it is. What differs is in nixbench's docs/from-colmena.md;
# most hives need no change.
#
#   nixbench eval     # the nodes, as nixbench reads them
#   nixbench plan     # what apply would do; nothing, where Colmena has just been
#   nixbench apply
{
  meta = {
    # lib.hive in flake.nix puts the flake's nixpkgs in place of this one.
    nixpkgs = import <nixpkgs> { system = "x86_64-linux"; };
  };

  defaults =
    { name, ... }:
    {
      networking.hostName = name;
      services.openssh.enable = true;
      system.stateVersion = "25.05";
    };

  host-a =
    { nodes, ... }:
    {
      deployment = {
        targetHost = "host-a.example.org";
        targetUser = "root";
        tags = [ "web" ];
      };
      boot.loader.grub.device = "/dev/sda";
      fileSystems."/".device = "/dev/disk/by-label/nixos";
      fileSystems."/".fsType = "ext4";
      # Nodes see each other.
      environment.etc."others".text = builtins.concatStringsSep "\n" (builtins.attrNames nodes);
    };
}
