# The guest's sshd. Deployments connect through it, so its unit is never replaced: drop-ins and
# configuration files add settings.
{ config, lib, pkgs, ... }:
let
  inherit (lib) types;
  inherit (import ../../lib/option.nix { inherit lib; }) option;
  cfg = config.services.openssh;
  show =
    v:
    if builtins.isBool v then
      lib.boolToYesNo v
    else if builtins.isList v then
      lib.concatMapStringsSep " " toString v
    else
      toString v;
in
{
  options.services.openssh = {
    enable = option types.bool false "Whether to configure sshd.";
    package = option types.package pkgs.openssh "The package.";
    startWhenNeeded = option types.bool false "Whether a socket starts sshd; the guest decides.";
    ports = option (types.listOf types.port) [ 22 ] "Ports to listen on.";
    openFirewall = option types.bool true "Whether the firewall lets sshd's ports through.";
    listenAddresses = option (types.listOf types.unspecified) [ ] "Addresses to listen on.";
    hostKeys =
      option (types.listOf types.attrs) [ { type = "ed25519"; path = "/etc/ssh/ssh_host_ed25519_key"; } ]
        "Host keys; the guest has them from its first boot.";
    authorizedKeysInHomedir = option types.bool true "Whether sshd looks for keys in ~/.ssh.";
    authorizedKeysFiles = option (types.listOf types.str) [ ] "Where sshd looks for keys.";
    settings = option (types.submodule {
        freeformType = types.attrsOf (
          types.nullOr (
            types.oneOf [ types.bool types.int types.str (types.listOf types.str) ]
          )
        );
        options = {
          PermitRootLogin = option (types.nullOr (
              types.enum [
                "yes"
                "without-password"
                "prohibit-password"
                "forced-commands-only"
                "no"
              ]
            )) "prohibit-password" "Whether root may log in.";
          PasswordAuthentication = option (types.nullOr types.bool) true "Whether passwords may log in.";
          KbdInteractiveAuthentication =
            option (types.nullOr types.bool) true
              "Whether sshd may ask questions.";
          X11Forwarding = option (types.nullOr types.bool) false "Whether X11 is forwarded.";
        };
      }) { } "Settings of sshd.";
    extraConfig = option types.lines "" "Lines at the end of sshd's configuration.";
  };

  config = lib.mkIf cfg.enable {
    services.openssh.authorizedKeysFiles =
      lib.optional cfg.authorizedKeysInHomedir "%h/.ssh/authorized_keys"
      ++ [ "/etc/ssh/authorized_keys.d/%u" ];
    networking.firewall.allowedTCPPorts = lib.mkIf cfg.openFirewall cfg.ports;

    environment.etc."ssh/sshd_config.d/50-nixos.conf".text =
      lib.concatMapStrings (p: "Port ${toString p}\n") cfg.ports
      + "AuthorizedKeysFile ${lib.concatStringsSep " " cfg.authorizedKeysFiles}\n"
      + lib.concatStrings (
        lib.mapAttrsToList (n: v: lib.optionalString (v != null) "${n} ${show v}\n") cfg.settings
      )
      + cfg.extraConfig;

    # Debian's unit is named ssh; a reload keeps open connections.
    systemd.services.ssh = {
      overrideStrategy = "asDropin";
      reloadTriggers = [ config.environment.etc."ssh/sshd_config.d/50-nixos.conf".source ];
    };
  };
}
