# Services that templates enable: a web server, which is busybox's here, and a database, which
# does not exist here.
{ config, lib, pkgs, ... }:
let
  inherit (lib) types;
  inherit (import ../../lib/option.nix { inherit lib; }) option;
in
{
  options.services = {
    nginx.enable = option types.bool false "Whether a web server listens on port 80.";
    postgresql.enable = option types.bool false "Whether there is a database; nothing comes of it.";
  };

  config = lib.mkIf config.services.nginx.enable {
    environment.etc."nginx/index.html".text = "Welcome to ${config.networking.hostName}.\n";
    systemd.services.nginx = {
      description = "Web server";
      wantedBy = [ "multi-user.target" ];
      after = [ "network.target" ];
      serviceConfig.ExecStart = "${pkgs.busybox}/bin/busybox httpd -f -p 80 -h /etc/nginx";
    };
  };
}
