# For nodes that share one closure: none of them may have its name built in, and
# `networking.hostName = name` stands in the defaults of nearly every hive. Empty
# means that the node takes its name from DHCP or from what it was booted with.
{ lib, name, ... }:
{
  networking.hostName = lib.mkOverride 10 "";
  # Else NixOS calls a system without a host name "unnamed".
  system.name = lib.mkDefault name;
}
