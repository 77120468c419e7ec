{ config, ... }:
{
  environment.etc."which".text = "${config.networking.hostName}, revision ${toString (config.system.stateVersion)}";
}
