# Writes the kind of the node's engine, such as `kubernetes`, to `/etc/nixbench/engine`. So the file
# /run/current-system/etc/nixbench/engine names the engine of the running system, also while the hive
# asks for another one. A system without an engine has no such file.
{ config, lib, ... }:
let
  inherit (config.deployment) engine;
in
{
  environment.etc."nixbench/engine" = lib.mkIf (engine != null) { text = "${engine.kind}\n"; };
}
