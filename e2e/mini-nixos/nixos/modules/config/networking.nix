# Names and addresses.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib) mkOption types;
  cfg = config.networking;

  addressType =
    bits:
    types.listOf (
      types.submodule {
        options = {
          address = mkOption {
            type = types.str;
            description = "The address.";
          };
          prefixLength = mkOption {
            type = types.addCheck types.int (n: n >= 0 && n <= bits);
            description = "Length of the network's prefix.";
          };
        };
      }
    );

  interface =
    { name, ... }:
    {
      options = {
        name = mkOption {
          type = types.str;
          default = name;
          description = "The interface.";
        };
        useDHCP = mkOption {
          type = types.nullOr types.bool;
          default = null;
          description = "Whether to ask DHCP for an address.";
        };
        ipv4.addresses = mkOption {
          type = addressType 32;
          default = [ ];
          example = [
            {
              address = "10.0.0.1";
              prefixLength = 16;
            }
          ];
          description = "IPv4 addresses.";
        };
        ipv6.addresses = mkOption {
          type = addressType 128;
          default = [ ];
          description = "IPv6 addresses.";
        };
        macAddress = mkOption {
          type = types.nullOr types.str;
          default = null;
          description = "MAC address to set.";
        };
        mtu = mkOption {
          type = types.nullOr types.int;
          default = null;
          description = "MTU of the interface.";
        };
      };
    };

  gatewayType = types.nullOr (
    types.coercedTo types.str (address: { inherit address; }) (
      types.submodule {
        options = {
          address = mkOption {
            type = types.str;
            description = "Address of the gateway.";
          };
          interface = mkOption {
            type = types.nullOr types.str;
            default = null;
            description = "Interface that leads there.";
          };
          metric = mkOption {
            type = types.nullOr types.int;
            default = null;
            description = "Metric of the route.";
          };
        };
      }
    )
  );

  # Interfaces that say anything become networkd's business.
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

  hostLine = address: names: "${address} ${lib.concatStringsSep " " names}\n";
in
{
  options.networking = {
    hostName = mkOption {
      type = types.strMatching "^$|^[[:alnum:]]([[:alnum:]_-]{0,61}[[:alnum:]])?$";
      default = config.system.nixos.distroId;
      defaultText = lib.literalExpression "config.system.nixos.distroId";
      example = "machine1";
      description = "The host's name; empty leaves it to DHCP or the hypervisor.";
    };
    domain = mkOption {
      type = types.nullOr types.str;
      default = null;
      example = "example.org";
      description = "The domain.";
    };
    fqdn = mkOption {
      type = types.str;
      default =
        if cfg.hostName != "" && cfg.domain != null then
          "${cfg.hostName}.${cfg.domain}"
        else
          throw ''
            The FQDN is required but cannot be determined from `networking.hostName`
            and `networking.domain`. Please ensure these options are set properly or
            set `networking.fqdn` directly.
          '';
      defaultText = lib.literalExpression ''"''${config.networking.hostName}.''${config.networking.domain}"'';
      description = "The host's name with its domain.";
    };
    fqdnOrHostName = mkOption {
      readOnly = true;
      type = types.str;
      default = if cfg.domain == null then cfg.hostName else cfg.fqdn;
      defaultText = "the FQDN, or the host's name without a domain";
      description = "The longest name there is.";
    };
    hostId = mkOption {
      type = types.nullOr types.str;
      default = null;
      example = "4e98920d";
      description = "The host's 32-bit ID, in hexadecimal.";
    };
    hosts = mkOption {
      type = types.attrsOf (types.listOf types.str);
      default = { };
      example = {
        "192.168.0.2" = [ "fileserver.local" ];
      };
      description = "Names of addresses.";
    };
    extraHosts = mkOption {
      type = types.lines;
      default = "";
      example = "192.168.0.1 lanlocalhost";
      description = "Lines at the end of /etc/hosts.";
    };
    nameservers = mkOption {
      type = types.listOf types.str;
      default = [ ];
      example = [ "130.161.158.4" ];
      description = "Name servers; without any, the guest keeps what DHCP told it.";
    };
    search = mkOption {
      type = types.listOf types.str;
      default = [ ];
      description = "Domains to search.";
    };
    timeServers = mkOption {
      type = types.listOf types.str;
      default = map (n: "${toString n}.nixos.pool.ntp.org") [
        0
        1
        2
        3
      ];
      defaultText = "NixOS' pool";
      description = "Time servers.";
    };
    useDHCP = mkOption {
      type = types.bool;
      default = true;
      description = "Whether interfaces that say nothing use DHCP. The guest's image decides that here.";
    };
    dhcpcd.enable = mkOption {
      type = types.bool;
      default = true;
      description = "Whether dhcpcd asks for addresses. Guests use networkd.";
    };
    useNetworkd = mkOption {
      type = types.bool;
      default = false;
      description = "Whether networkd configures the network.";
    };
    useHostResolvConf = mkOption {
      type = types.bool;
      default = false;
      description = "Whether a container uses its host's resolv.conf.";
    };
    usePredictableInterfaceNames = mkOption {
      type = types.nullOr types.bool;
      default = true;
      description = "Whether interfaces are named by where they sit.";
    };
    enableIPv6 = mkOption {
      type = types.bool;
      default = true;
      description = "Whether to use IPv6.";
    };
    nftables.enable = mkOption {
      type = types.bool;
      default = false;
      description = "Whether the firewall speaks nftables. Not supported here.";
    };
    networkmanager.enable = mkOption {
      type = types.bool;
      default = false;
      description = "Whether to use NetworkManager. Not supported here.";
    };
    resolvconf.enable = mkOption {
      type = types.bool;
      default = true;
      description = "Whether resolvconf writes resolv.conf.";
    };
    interfaces = mkOption {
      type = types.attrsOf (types.submodule interface);
      default = { };
      example = lib.literalExpression "{ eth0.useDHCP = true; }";
      description = "What each interface is configured with.";
    };
    defaultGateway = mkOption {
      type = gatewayType;
      default = null;
      example = "10.0.0.254";
      description = "The default gateway.";
    };
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

    systemd.network = lib.mkIf (cfg.interfaces != { }) {
      enable = true;
      networks = lib.mapAttrs' (
        _: i: lib.nameValuePair "40-${i.name}" (networkFor i)
      ) cfg.interfaces;
    };

    system.activationScripts.hostname = lib.mkIf (cfg.hostName != "") (
      # A container may not be allowed to; its name then is what /etc/hostname says at boot.
      lib.stringAfter [ "etc" ] ''
        ${pkgs.hostname}/bin/hostname ${lib.escapeShellArg cfg.hostName} ||
          echo "warning: cannot set the host name to ${cfg.hostName}" >&2
      ''
    );
  };
}
