# A hive without nodes. docs/hive.md of nixbench says what it may hold.
{
  nixpkgs ? <nixpkgs>, # 25.05 or later
}:
{
  meta.name = "hive";
  meta.nixpkgs = nixpkgs;

  # For every node: any NixOS option.
  defaults = {
    system.stateVersion = "25.05";
  };

  # A machine that exists:
  #   web = { deployment.targetHost = "web.example.org"; services.nginx.enable = true; };
  #
  # Machines that nixbench boots:
  #   roles.worker = { count = 3; memory = "4G"; modules = [ ./worker.nix ]; };
}
