# A hive without nodes. nixbench's docs/hive.md describes what a hive may contain.
{
  nixpkgs ? <nixpkgs>, # 25.05 or later
}:
{
  meta.name = "hive";
  meta.nixpkgs = nixpkgs;

  # NixOS options of every node.
  defaults = {
    system.stateVersion = "25.05";
  };

  # An existing machine:
  #   web = { deployment.targetHost = "web.example.org"; services.nginx.enable = true; };
  #
  # Machines that nixbench creates and boots:
  #   roles.worker = { count = 3; memory = "4G"; modules = [ ./worker.nix ]; };
}
