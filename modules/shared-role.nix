# Settings of nodes that share one system. The system must not contain the name of a node, so this module overrides
# `networking.hostName = name`, which most hives have in their defaults. With an empty host name in the system, a node gets its
# name from DHCP or from its boot credentials.
{ lib, name, ... }:
{
  networking.hostName = lib.mkOverride 10 "";
  # By default, NixOS names a system without a host name "unnamed".
  system.name = lib.mkDefault name;
}
