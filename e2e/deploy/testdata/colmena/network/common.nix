{ pkgs, ... }:
{
  environment.systemPackages = [ pkgs.hello ];
  networking.firewall.enable = false;
  system.stateVersion = "24.11";
}
