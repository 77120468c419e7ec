# systemd.network: files for the guest's networkd.
{ config, lib, ... }:
let
  inherit (lib) types;
  inherit (import ../../../lib/option.nix { inherit lib; }) option;
  inherit (import ../../../lib/utils.nix { inherit lib; }) section unitOption;
  cfg = config.systemd.network;

  settings =
    name:
    option (types.attrsOf unitOption) { } "The [${name}] section.";
  sections =
    name:
    option (types.listOf (types.attrsOf unitOption)) [ ] "The [${name}] sections.";
  strings =
    description:
    option (types.listOf types.str) [ ] description;
  extraConfig = option types.lines "" "Lines at the end of the file.";
  enable = option types.bool true "Whether to write this file.";

  network.options = {
    inherit enable extraConfig;
    matchConfig = settings "Match";
    linkConfig = settings "Link";
    networkConfig = settings "Network";
    dhcpV4Config = settings "DHCPv4";
    dhcpV6Config = settings "DHCPv6";
    addresses = sections "Address";
    routes = sections "Route";
    name = option (types.nullOr types.str) null "Name of the interface, short for matchConfig.Name.";
    DHCP = option (types.nullOr types.str) null "Short for networkConfig.DHCP.";
    address = strings "Addresses.";
    gateway = strings "Gateways.";
    dns = strings "Name servers.";
    domains = option (types.nullOr (types.listOf types.str)) null "Domains to search.";
    bridge = strings "Bridges that the interface joins.";
    vlan = strings "VLANs on the interface.";
  };
  netdev.options = {
    inherit enable extraConfig;
    netdevConfig = settings "NetDev";
    bridgeConfig = settings "Bridge";
    vlanConfig = settings "VLAN";
    vxlanConfig = settings "VXLAN";
  };

  ifAny = name: set: lib.optional (set != { }) (section name set);
  file = parts: extra: lib.concatStringsSep "\n" (parts ++ lib.optional (extra != "") extra);

  networkText =
    n:
    file (
      ifAny "Match" (n.matchConfig // lib.optionalAttrs (n.name != null) { Name = n.name; })
      ++ ifAny "Link" n.linkConfig
      ++ ifAny "Network" (
        n.networkConfig
        // lib.optionalAttrs (n.DHCP != null) { inherit (n) DHCP; }
        // lib.filterAttrs (_: v: v != [ ]) {
          Address = lib.toList (n.networkConfig.Address or [ ]) ++ n.address;
          Gateway = lib.toList (n.networkConfig.Gateway or [ ]) ++ n.gateway;
          DNS = lib.toList (n.networkConfig.DNS or [ ]) ++ n.dns;
          Bridge = lib.toList (n.networkConfig.Bridge or [ ]) ++ n.bridge;
          VLAN = lib.toList (n.networkConfig.VLAN or [ ]) ++ n.vlan;
        }
        // lib.optionalAttrs (n.domains != null) { Domains = lib.concatStringsSep " " n.domains; }
      )
      ++ map (section "Address") n.addresses
      ++ map (section "Route") n.routes
      ++ ifAny "DHCPv4" n.dhcpV4Config
      ++ ifAny "DHCPv6" n.dhcpV6Config
    ) n.extraConfig;
  netdevText =
    n:
    file (
      ifAny "NetDev" n.netdevConfig
      ++ ifAny "Bridge" n.bridgeConfig
      ++ ifAny "VLAN" n.vlanConfig
      ++ ifAny "VXLAN" n.vxlanConfig
    ) n.extraConfig;

  files =
    suffix: text: set:
    lib.mapAttrs' (
      name: v: lib.nameValuePair "systemd/network/${name}.${suffix}" { text = text v; }
    ) (lib.filterAttrs (_: v: v.enable) set);

  table =
    type:
    option (types.attrsOf (types.submodule type)) { } "Files for networkd, by name.";
in
{
  options.systemd.network = {
    enable = option types.bool false "Whether networkd gets these files.";
    config.networkConfig = option (types.attrsOf types.raw) { } "Section Network of networkd.conf, which networkd reads when it starts.";
    networks = table network;
    netdevs = table netdev;
    wait-online = {
      enable = option types.bool true "Whether network-online.target waits for networkd.";
      anyInterface = option types.bool config.networking.useDHCP "Whether one interface suffices.";
      timeout = option types.ints.unsigned 120 "Seconds to wait.";
      extraArgs = strings "Extra arguments.";
      ignoredInterfaces = strings "Interfaces that do not count.";
    };
  };

  config = lib.mkMerge [
    { systemd.network.enable = lib.mkIf config.networking.useNetworkd true; }
    (lib.mkIf cfg.enable {
      environment.etc =
        files "network" networkText cfg.networks
        // files "netdev" netdevText cfg.netdevs
        // lib.optionalAttrs (cfg.config.networkConfig != { }) {
          "systemd/networkd.conf".text = file [ (section "Network" cfg.config.networkConfig) ] "";
        };
      # A restart would interrupt the connection of the switch; networkd applies changed files
      # after a reload.
      systemd.services.systemd-networkd = {
        restartIfChanged = false;
        reloadTriggers = map (n: config.environment.etc."systemd/network/${n}.network".source) (
          lib.attrNames (lib.filterAttrs (_: n: n.enable) cfg.networks)
        );
      };
      systemd.services.systemd-networkd-wait-online = {
        inherit (cfg.wait-online) enable;
        serviceConfig.ExecStart = [
          ""
          "/usr/lib/systemd/systemd-networkd-wait-online --timeout=${toString cfg.wait-online.timeout}${
            lib.concatMapStrings (a: " ${a}") (
              lib.optional cfg.wait-online.anyInterface "--any"
              ++ map (i: "--ignore=${i}") cfg.wait-online.ignoredInterfaces
              ++ cfg.wait-online.extraArgs
            )
          }"
        ];
        restartIfChanged = false;
      };
    })
  ];
}
