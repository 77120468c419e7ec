# NixOS machines that exist already, and that you reach over SSH as root:
#
#   nixbench plan             # what would happen, machine by machine
#   nixbench apply            # build, copy, switch; what fails goes back by itself
#   nixbench apply --on web   # only one of them
#   nixbench status
#   nixbench rollback         # what they ran before
{
  nixpkgs ? <nixpkgs>, # 25.05 or later
}:
{
  meta.name = "machines";
  meta.nixpkgs = nixpkgs;

  # Settings of every machine: any NixOS option.
  defaults =
    { name, ... }:
    {
      networking.hostName = name;
      services.openssh.enable = true;
      # What your machines have in their hardware-configuration.nix; copy those files
      # here and import each below, in place of these four lines.
      boot.loader.grub.device = "/dev/sda";
      fileSystems."/".device = "/dev/disk/by-label/nixos";
      fileSystems."/".fsType = "ext4";
      system.stateVersion = "25.05";
    };

  # Each other attribute is a machine.
  web = {
    deployment.targetHost = "web.example.org"; # a name, an address, or from your SSH configuration
    deployment.tags = [ "front" ]; # for --on @front
    services.nginx.enable = true;
    networking.firewall.allowedTCPPorts = [ 80 ];
  };

  db = {
    deployment.targetHost = "db.example.org";
    services.postgresql.enable = true;
    # A secret: it goes there over SSH and never into the Nix store.
    # deployment.keys."backup-password".keyCommand = [ "pass" "show" "backup" ];
  };
}
