# A firewall of plain iptables, in one chain of its own.
{ config, lib, pkgs, ... }:
let
  inherit (lib) mkOption types;
  inherit (import ../../lib/option.nix { inherit lib; }) option required;
  cfg = config.networking.firewall;

  range = types.submodule {
    options = {
      from = required types.port "First port.";
      to = required types.port "Last port.";
    };
  };
  canonicalPorts = ports: lib.unique (lib.sort lib.lessThan ports);

  portOptions = {
    allowedTCPPorts = mkOption {
      type = types.listOf types.port;
      default = [ ];
      apply = canonicalPorts;
      description = "TCP ports that accept connections.";
    };
    allowedUDPPorts = mkOption {
      type = types.listOf types.port;
      default = [ ];
      apply = canonicalPorts;
      description = "UDP ports that accept packets.";
    };
    allowedTCPPortRanges = option (types.listOf range) [ ] "Ranges of TCP ports that accept connections.";
    allowedUDPPortRanges = option (types.listOf range) [ ] "Ranges of UDP ports that accept packets.";
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
    enable = option types.bool true "Whether to refuse connections that nothing allows.";
    package = option types.package pkgs.iptables "The package with iptables.";
    allowPing = option types.bool true "Whether to answer pings.";
    rejectPackets = option types.bool false "Whether to reject what is refused instead of dropping it.";
    checkReversePath =
      option (types.either types.bool ( types.enum [ "strict" "loose" ] )) true
        "Whether answers must leave where packets came in; true is strict.";
    trustedInterfaces = mkOption {
      type = types.listOf types.str;
      default = [ ];
      apply = lib.unique;
      description = "Interfaces from which everything is accepted.";
    };
    interfaces =
      option (types.attrsOf (types.submodule { options = portOptions; })) { }
        "Ports open on one interface only.";
    extraPackages = option (types.listOf types.package) [ ] "Packages for the commands.";
    extraCommands = option types.lines "" "Shell commands after the rules.";
    extraStopCommands = option types.lines "" "Shell commands that undo extraCommands.";
    logRefusedConnections = option types.bool true "Whether to log what is refused; nothing is logged here.";
  };

  config = {
    networking.firewall.trustedInterfaces = [ "lo" ];

    systemd.services.firewall = lib.mkIf cfg.enable {
      description = "Firewall";
      wantedBy = [ "sysinit.target" ];
      wants = [ "network-pre.target" ];
      after = [ "systemd-modules-load.service" ];
      before = [ "network-pre.target" "shutdown.target" ];
      conflicts = [ "shutdown.target" ];
      path = [ cfg.package ] ++ cfg.extraPackages;
      unitConfig.DefaultDependencies = false;
      reloadIfChanged = true;
      serviceConfig = { Type = "oneshot"; RemainAfterExit = true; };
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
