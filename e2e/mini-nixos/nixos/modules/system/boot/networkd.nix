# systemd.network: files for the guest's networkd.
{ config, lib, ... }:
let
  inherit (lib) mkOption types;
  inherit (import ../../../lib/utils.nix { inherit lib; }) section unitOption;
  cfg = config.systemd.network;

  settings =
    name:
    mkOption {
      type = types.attrsOf unitOption;
      default = { };
      description = "The [${name}] section.";
    };
  sections =
    name:
    mkOption {
      type = types.listOf (types.attrsOf unitOption);
      default = [ ];
      description = "The [${name}] sections.";
    };
  strings =
    description:
    mkOption {
      type = types.listOf types.str;
      default = [ ];
      inherit description;
    };
  extraConfig = mkOption {
    type = types.lines;
    default = "";
    description = "Lines at the end of the file.";
  };
  enable = mkOption {
    type = types.bool;
    default = true;
    description = "Whether to write this file.";
  };

  network.options = {
    inherit enable extraConfig;
    matchConfig = settings "Match";
    linkConfig = settings "Link";
    networkConfig = settings "Network";
    dhcpV4Config = settings "DHCPv4";
    dhcpV6Config = settings "DHCPv6";
    addresses = sections "Address";
    routes = sections "Route";
    name = mkOption {
      type = types.nullOr types.str;
      default = null;
      description = "Name of the interface, short for matchConfig.Name.";
    };
    DHCP = mkOption {
      type = types.nullOr types.str;
      default = null;
      description = "Short for networkConfig.DHCP.";
    };
    address = strings "Addresses.";
    gateway = strings "Gateways.";
    dns = strings "Name servers.";
    domains = mkOption {
      type = types.nullOr (types.listOf types.str);
      default = null;
      description = "Domains to search.";
    };
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
  link.options = {
    inherit enable extraConfig;
    matchConfig = settings "Match";
    linkConfig = settings "Link";
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
  linkText = l: file (ifAny "Match" l.matchConfig ++ ifAny "Link" l.linkConfig) l.extraConfig;

  files =
    suffix: text: set:
    lib.mapAttrs' (
      name: v: lib.nameValuePair "systemd/network/${name}.${suffix}" { text = text v; }
    ) (lib.filterAttrs (_: v: v.enable) set);

  table =
    type:
    mkOption {
      type = types.attrsOf (types.submodule type);
      default = { };
      description = "Files for networkd, by name.";
    };
in
{
  options.systemd.network = {
    enable = mkOption {
      type = types.bool;
      default = false;
      description = "Whether networkd gets these files.";
    };
    networks = table network;
    netdevs = table netdev;
    links = table link;
    wait-online = {
      enable = mkOption {
        type = types.bool;
        default = true;
        description = "Whether network-online.target waits for networkd.";
      };
      anyInterface = mkOption {
        type = types.bool;
        default = config.networking.useDHCP;
        defaultText = lib.literalExpression "config.networking.useDHCP";
        description = "Whether one interface suffices.";
      };
      timeout = mkOption {
        type = types.ints.unsigned;
        default = 120;
        description = "Seconds to wait.";
      };
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
        // files "link" linkText cfg.links;
      # A restart would drop the connection that the switch came by; networkd
      # takes up changed files with a reload.
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
