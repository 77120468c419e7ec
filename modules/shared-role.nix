# Settings of nodes that share one closure. The closure must not contain the name of a node,
# so this module overrides `networking.hostName = name`, which most hives have in their
# defaults. With an empty name, a node gets its host name from DHCP or from its boot
# credentials.
{ lib, name, ... }:
{
  networking.hostName = lib.mkOverride 10 "";
  # By default, NixOS names a system without a host name "unnamed".
  system.name = lib.mkDefault name;
}
