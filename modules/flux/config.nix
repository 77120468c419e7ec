# The configuration of the brokers, which is the same on all nodes.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  cfg = config.nixbench.flux;

  # Returns a list of hosts in the syntax of RFC 29 of Flux, such as compute-[1-64].
  hostsOf = role: capacity: if capacity == 1 then "${role}-1" else "${role}-[1-${toString capacity}]";
  idsOf = count: if count == 1 then "0" else "0-${toString (count - 1)}";
  listen = {
    bind = "tcp://*:${toString cfg.port}";
    connect = "tcp://${cfg.leader.address}:${toString cfg.port}";
  };
in
{
  # interface
  options.nixbench.flux.configFile = lib.mkOption {
    type = lib.types.path;
    internal = true;
    description = "The configuration of the broker.";
  };

  # implementation
  config.nixbench.flux = lib.mkIf cfg.configured {
    configFile = (pkgs.formats.toml { }).generate "flux.toml" cfg.settings;
    settings = {
      # The first host of this list is the leader, to which all other brokers connect.
      bootstrap = {
        curve_cert = cfg.certificate;
        hosts = [
          ({ host = cfg.leader.name; } // listen)
        ]
        ++ lib.mapAttrsToList (role: r: { host = hostsOf role r.capacity; }) cfg.computeRoles;
      };
      resource = {
        config = [
          {
            hosts = cfg.leader.name;
            cores = "0";
          }
        ]
        ++ lib.mapAttrsToList (
          role: r:
          {
            hosts = hostsOf role r.capacity;
            cores = idsOf (if r.cores == null then 1 else r.cores);
            inherit (r) properties;
          }
          // lib.optionalAttrs (r.gpus > 0) { gpus = idsOf r.gpus; }
        ) cfg.computeRoles;
        exclude = cfg.leader.name;
      };
      # root may drain nodes and see all jobs.
      access.allow-root-owner = lib.mkDefault true;
      # After this time, the leader reports a node that has lost its power as offline. Flux's own default is about 20 minutes.
      tbon.tcp_user_timeout = lib.mkDefault "30s";
    };
  };
}
