# Existing NixOS machines, to which you can log in as root over SSH:
#
#   nixbench plan             # show what apply would change on each machine
#   nixbench apply            # build, copy, switch; a machine whose switch fails rolls back by itself
#   nixbench apply --on web   # deploy to one machine only
#   nixbench status           # show the state of the machines
#   nixbench rollback         # undo the last run
{
  nixpkgs ? <nixpkgs>, # 25.05 or later
}:
{
  meta.name = "machines";
  meta.nixpkgs = nixpkgs;

  # NixOS options of every machine.
  defaults =
    { name, ... }:
    {
      networking.hostName = name;
      services.openssh.enable = true;
      # The next four lines are examples. Copy the hardware-configuration.nix of each machine
      # here and import it below, and set boot loader and stateVersion as on your machines.
      boot.loader.grub.device = "/dev/sda";
      fileSystems."/".device = "/dev/disk/by-label/nixos";
      fileSystems."/".fsType = "ext4";
      system.stateVersion = "25.05";
    };

  # Each other attribute of the hive is a machine.
  web = {
    deployment.targetHost = "web.example.org"; # a host name, an address, or a host of your SSH configuration
    deployment.tags = [ "front" ]; # for --on @front
    services.nginx.enable = true;
    networking.firewall.allowedTCPPorts = [ 80 ];
  };

  db = {
    deployment.targetHost = "db.example.org";
    services.postgresql.enable = true;
    # A secret: nixbench uploads it over SSH, and it is never in the Nix store.
    # deployment.keys."backup-password".keyCommand = [ "pass" "show" "backup" ];
  };
}
