# Names and addresses.
{ config, lib, pkgs, ... }:
let
  inherit (lib) mkOption types;
  inherit (import ../../lib/option.nix { inherit lib; }) option required;
  cfg = config.networking;

  addressType =
    bits:
    types.listOf (
      types.submodule {
        options = {
          address = required types.str "The address.";
          prefixLength =
            required (types.addCheck types.int (n: n >= 0 && n <= bits))
              "Length of the network's prefix.";
        };
      }
    );

  interface =
    { name, ... }:
    {
      options = {
        name = option types.str name "The interface.";
        useDHCP = option (types.nullOr types.bool) null "Whether to ask DHCP for an address.";
        ipv4.addresses = option (addressType 32) [ ] "IPv4 addresses.";
        ipv6.addresses = option (addressType 128) [ ] "IPv6 addresses.";
        macAddress = option (types.nullOr types.str) null "MAC address to set.";
        mtu = option (types.nullOr types.int) null "MTU of the interface.";
      };
    };

  gatewayType = types.nullOr (
    types.coercedTo types.str (address: { inherit address; }) (
      types.submodule {
        options = {
          address = required types.str "Address of the gateway.";
          interface = option (types.nullOr types.str) null "Interface that leads there.";
          metric = option (types.nullOr types.int) null "Metric of the route.";
        };
      }
    )
  );

  # Interfaces with settings are configured by networkd.
  networkFor = i: {
    matchConfig.Name = i.name;
    address = map (a: "${a.address}/${toString a.prefixLength}") (
      i.ipv4.addresses ++ i.ipv6.addresses
    );
    networkConfig =
      lib.optionalAttrs (i.useDHCP != null) { DHCP = if i.useDHCP then "yes" else "no"; }
      // lib.optionalAttrs (cfg.defaultGateway != null) { Gateway = cfg.defaultGateway.address; };
    linkConfig = lib.optionalAttrs (i.mtu != null) { MTUBytes = toString i.mtu; };
  };

  fqdn =
    if cfg.hostName != "" && cfg.domain != null then
      "${cfg.hostName}.${cfg.domain}"
    else
      throw "networking.fqdn needs both networking.hostName and networking.domain";
  hostLine = address: names: "${address} ${lib.concatStringsSep " " names}\n";
in
{
  options.networking = {
    hostName =
      option (types.strMatching "^$|^[[:alnum:]]([[:alnum:]_-]{0,61}[[:alnum:]])?$") config.system.nixos.distroId
        "The host's name; empty leaves it to DHCP or the hypervisor.";
    domain = option (types.nullOr types.str) null "The domain.";
    fqdn = option types.str fqdn "The host's name with its domain.";
    fqdnOrHostName = mkOption {
      type = types.str;
      default = if cfg.domain == null then cfg.hostName else cfg.fqdn;
      readOnly = true;
      description = "The longest name there is.";
    };
    hostId = option (types.nullOr types.str) null "The host's 32-bit ID, in hexadecimal.";
    hosts = option (types.attrsOf (types.listOf types.str)) { } "Names of addresses.";
    extraHosts = option types.lines "" "Lines at the end of /etc/hosts.";
    nameservers =
      option (types.listOf types.str) [ ]
        "Name servers; without any, the guest keeps what DHCP told it.";
    search = option (types.listOf types.str) [ ] "Domains to search.";
    timeServers =
      option (types.listOf types.str) (map (n: "${toString n}.nixos.pool.ntp.org") [ 0 1 2 3 ])
        "Time servers.";
    useDHCP =
      option types.bool true
        "Whether interfaces that say nothing use DHCP. The guest's image decides that here.";
    dhcpcd.denyInterfaces = option (types.listOf types.str) [ ] "Interfaces that dhcpcd leaves alone.";
    dhcpcd.enable = option types.bool true "Whether dhcpcd asks for addresses. Guests use networkd.";
    useNetworkd = option types.bool false "Whether networkd configures the network.";
    useHostResolvConf = option types.bool false "Whether a container uses its host's resolv.conf.";
    usePredictableInterfaceNames =
      option (types.nullOr types.bool) true
        "Whether interfaces are named by where they sit.";
    enableIPv6 = option types.bool true "Whether to use IPv6.";
    nftables.enable = option types.bool false "Whether the firewall speaks nftables. Not supported here.";
    networkmanager.enable = option types.bool false "Whether to use NetworkManager. Not supported here.";
    resolvconf.enable = option types.bool true "Whether resolvconf writes resolv.conf.";
    interfaces =
      option (types.attrsOf (types.submodule interface)) { }
        "What each interface is configured with.";
    defaultGateway = option gatewayType null "The default gateway.";
  };

  config = {
    assertions = [
      {
        assertion = !cfg.nftables.enable && !cfg.networkmanager.enable;
        message = "The mini NixOS has neither networking.nftables nor networking.networkmanager.";
      }
    ];

    networking.hosts = {
      "127.0.0.1" = [ "localhost" ];
    }
    // lib.optionalAttrs cfg.enableIPv6 { "::1" = [ "localhost" ]; }
    // lib.optionalAttrs (cfg.hostName != "") {
      "127.0.0.2" =
        lib.optional (cfg.domain != null) "${cfg.hostName}.${cfg.domain}" ++ [ cfg.hostName ];
    };

    environment.etc = {
      hosts.text =
        lib.concatStrings (lib.mapAttrsToList hostLine (lib.filterAttrs (_: n: n != [ ]) cfg.hosts))
        + cfg.extraHosts;
      hostname = lib.mkIf (cfg.hostName != "") { text = cfg.hostName + "\n"; };
      hostid = lib.mkIf (cfg.hostId != null) { text = cfg.hostId + "\n"; };
      "resolv.conf" = lib.mkIf (cfg.nameservers != [ ] && !config.services.resolved.enable) {
        text =
          lib.optionalString (cfg.search != [ ]) "search ${lib.concatStringsSep " " cfg.search}\n"
          + lib.concatMapStrings (s: "nameserver ${s}\n") cfg.nameservers;
      };
    };

    systemd.network = lib.mkMerge [
      (lib.mkIf (cfg.interfaces != { }) {
        enable = true;
        networks = lib.mapAttrs' (
          _: i: lib.nameValuePair "40-${i.name}" (networkFor i)
        ) cfg.interfaces;
      })
      (lib.mkIf (cfg.useNetworkd && cfg.useDHCP) {
        networks."99-ethernet-default-dhcp" = {
          matchConfig = {
            Type = "ether";
            Kind = "!*";
          };
          DHCP = "yes";
        };
      })
    ];

    system.activationScripts.hostname = lib.mkIf (cfg.hostName != "") (
      # A container may lack the permission; it gets the name of /etc/hostname at boot.
      lib.stringAfter [ "etc" ] ''
        hostName=
        [ ! -r /proc/sys/kernel/hostname ] || read -r hostName </proc/sys/kernel/hostname
        [ "$hostName" = ${lib.escapeShellArg cfg.hostName} ] || ${pkgs.hostname}/bin/hostname ${lib.escapeShellArg cfg.hostName} ||
          echo "warning: cannot set the host name to ${cfg.hostName}" >&2
      ''
    );
  };
}
