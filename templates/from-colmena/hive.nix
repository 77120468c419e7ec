# Replace this file with the hive.nix of your Colmena hive. Most hives need no change;
# nixbench's docs/from-colmena.md lists the differences.
#
#   nixbench eval     # list the nodes
#   nixbench plan     # show what apply would change; right after a colmena apply: nothing
#   nixbench apply
{
  meta = {
    # lib.hive in flake.nix replaces this with the nixpkgs of the flake.
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
      # A node can read the names and the configuration of all nodes.
      environment.etc."others".text = builtins.concatStringsSep "\n" (builtins.attrNames nodes);
    };
}
