# The guest's clock is the hypervisor's business: accepted, and left alone.
{ config, lib, ... }:
let
  inherit (lib) mkOption types;
in
{
  options.services.timesyncd = {
    enable = mkOption {
      type = types.bool;
      default = !config.boot.isContainer;
      defaultText = lib.literalExpression "!config.boot.isContainer";
      description = "Whether systemd-timesyncd keeps the clock.";
    };
    servers = mkOption {
      type = types.nullOr (types.listOf types.str);
      default = config.networking.timeServers;
      defaultText = lib.literalExpression "config.networking.timeServers";
      description = "Time servers.";
    };
  };
}
