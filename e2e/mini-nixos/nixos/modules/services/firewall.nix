# A firewall of plain iptables, in one chain of its own.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib) mkOption types;
  cfg = config.networking.firewall;

  range = types.submodule {
    options = {
      from = mkOption {
        type = types.port;
        description = "First port.";
      };
      to = mkOption {
        type = types.port;
        description = "Last port.";
      };
    };
  };
  canonicalPorts = ports: lib.unique (lib.sort lib.lessThan ports);

  portOptions = {
    allowedTCPPorts = mkOption {
      type = types.listOf types.port;
      default = [ ];
      apply = canonicalPorts;
      example = [
        22
        80
      ];
      description = "TCP ports that accept connections.";
    };
    allowedUDPPorts = mkOption {
      type = types.listOf types.port;
      default = [ ];
      apply = canonicalPorts;
      example = [ 53 ];
      description = "UDP ports that accept packets.";
    };
    allowedTCPPortRanges = mkOption {
      type = types.listOf range;
      default = [ ];
      example = [
        {
          from = 8999;
          to = 9003;
        }
      ];
      description = "Ranges of TCP ports that accept connections.";
    };
    allowedUDPPortRanges = mkOption {
      type = types.listOf range;
      default = [ ];
      example = [
        {
          from = 60000;
          to = 61000;
        }
      ];
      description = "Ranges of UDP ports that accept packets.";
    };
  };

  acceptRules =
    match: ports:
    let
      rules =
        protocol: singles: ranges:
        lib.concatMapStrings (p: "rule ${match} -p ${protocol} --dport ${p} -j nixos-fw-accept\n") (
          map toString singles ++ map (r: "${toString r.from}:${toString r.to}") ranges
        );
    in
    rules "tcp" ports.allowedTCPPorts ports.allowedTCPPortRanges
    + rules "udp" ports.allowedUDPPorts ports.allowedUDPPortRanges;

  helpers = ''
    both() { iptables -w "$@"; ${lib.optionalString config.networking.enableIPv6 ''ip6tables -w "$@"''}; }
    ip46tables() { both "$@"; }
    rule() { both -A nixos-fw "$@"; }
    clear_chains() {
      both -D INPUT -j nixos-fw 2>/dev/null || true
      for chain in nixos-fw nixos-fw-accept; do
        both -F "$chain" 2>/dev/null || true
        both -X "$chain" 2>/dev/null || true
      done
    }
  '';
in
{
  options.networking.firewall = portOptions // {
    enable = mkOption {
      type = types.bool;
      default = true;
      description = "Whether to refuse connections that nothing allows.";
    };
    package = mkOption {
      type = types.package;
      default = pkgs.iptables;
      defaultText = lib.literalExpression "pkgs.iptables";
      description = "The package with iptables.";
    };
    allowPing = mkOption {
      type = types.bool;
      default = true;
      description = "Whether to answer pings.";
    };
    rejectPackets = mkOption {
      type = types.bool;
      default = false;
      description = "Whether to reject what is refused instead of dropping it.";
    };
    checkReversePath = mkOption {
      type = types.either types.bool (
        types.enum [
          "strict"
          "loose"
        ]
      );
      default = true;
      description = "Whether answers must leave where packets came in; true is strict.";
    };
    trustedInterfaces = mkOption {
      type = types.listOf types.str;
      default = [ ];
      apply = lib.unique;
      example = [ "cni0" ];
      description = "Interfaces from which everything is accepted.";
    };
    interfaces = mkOption {
      type = types.attrsOf (types.submodule { options = portOptions; });
      default = { };
      description = "Ports open on one interface only.";
    };
    extraPackages = mkOption {
      type = types.listOf types.package;
      default = [ ];
      description = "Packages for the commands.";
    };
    extraCommands = mkOption {
      type = types.lines;
      default = "";
      description = "Shell commands after the rules.";
    };
    extraStopCommands = mkOption {
      type = types.lines;
      default = "";
      description = "Shell commands that undo extraCommands.";
    };
    logRefusedConnections = mkOption {
      type = types.bool;
      default = true;
      description = "Whether to log what is refused; nothing is logged here.";
    };
  };

  config = {
    networking.firewall.trustedInterfaces = [ "lo" ];

    systemd.services.firewall = lib.mkIf cfg.enable {
      description = "Firewall";
      wantedBy = [ "sysinit.target" ];
      wants = [ "network-pre.target" ];
      after = [ "systemd-modules-load.service" ];
      before = [
        "network-pre.target"
        "shutdown.target"
      ];
      conflicts = [ "shutdown.target" ];
      path = [ cfg.package ] ++ cfg.extraPackages;
      unitConfig.DefaultDependencies = false;
      reloadIfChanged = true;
      serviceConfig = {
        Type = "oneshot";
        RemainAfterExit = true;
      };
      script = helpers + ''
        start() {
          clear_chains
          both -N nixos-fw-accept
          both -A nixos-fw-accept -j ACCEPT
          both -N nixos-fw
          ${lib.concatMapStrings (i: "rule -i ${i} -j nixos-fw-accept\n") cfg.trustedInterfaces}
          rule -m conntrack --ctstate ESTABLISHED,RELATED -j nixos-fw-accept
          ${acceptRules "" cfg}
          ${lib.concatStrings (lib.mapAttrsToList (i: acceptRules "-i ${i}") cfg.interfaces)}
          ${lib.optionalString cfg.allowPing ''
            iptables -w -A nixos-fw -p icmp --icmp-type echo-request -j nixos-fw-accept
          ''}
          ${lib.optionalString config.networking.enableIPv6 ''
            ip6tables -w -A nixos-fw -p icmpv6 -j nixos-fw-accept
          ''}
          ${cfg.extraCommands}
          rule -j ${if cfg.rejectPackets then "REJECT" else "DROP"}
          both -A INPUT -j nixos-fw
        }
        start
      '';
      # The chains are rebuilt as a whole either way.
      reload = config.systemd.services.firewall.script;
      preStop = helpers + ''
        clear_chains
        ${cfg.extraStopCommands}
      '';
    };
  };
}
