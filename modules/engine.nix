# Writes the kind of the node's engine, such as `kubernetes`, to `/etc/nixbench/engine`. So
# /run/current-system/etc/nixbench/engine names the engine of the running system, even if the hive already has another engine for
# the node. A system without an engine does not have this file.
{ config, lib, ... }:
let
  inherit (config.deployment) engine;
in
{
  environment.etc."nixbench/engine" = lib.mkIf (engine != null) { text = "${engine.kind}\n"; };
}
