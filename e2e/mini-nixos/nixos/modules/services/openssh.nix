# The guest's sshd. It runs already, and it is how a node is reached: we add
# settings to it and never replace it.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib) mkOption types;
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
    enable = mkOption {
      type = types.bool;
      default = false;
      description = "Whether to configure sshd.";
    };
    package = mkOption {
      type = types.package;
      default = pkgs.openssh;
      defaultText = lib.literalExpression "pkgs.openssh";
      description = "The package.";
    };
    startWhenNeeded = mkOption {
      type = types.bool;
      default = false;
      description = "Whether a socket starts sshd; the guest decides.";
    };
    ports = mkOption {
      type = types.listOf types.port;
      default = [ 22 ];
      description = "Ports to listen on.";
    };
    openFirewall = mkOption {
      type = types.bool;
      default = true;
      description = "Whether the firewall lets sshd's ports through.";
    };
    listenAddresses = mkOption {
      type = types.listOf types.unspecified;
      default = [ ];
      description = "Addresses to listen on.";
    };
    hostKeys = mkOption {
      type = types.listOf types.attrs;
      default = [
        {
          type = "ed25519";
          path = "/etc/ssh/ssh_host_ed25519_key";
        }
      ];
      description = "Host keys; the guest has them from its first boot.";
    };
    authorizedKeysFiles = mkOption {
      type = types.listOf types.str;
      default = [ ];
      description = "Where sshd looks for keys.";
    };
    settings = mkOption {
      type = types.submodule {
        freeformType = types.attrsOf (
          types.nullOr (
            types.oneOf [
              types.bool
              types.int
              types.str
              (types.listOf types.str)
            ]
          )
        );
        options = {
          PermitRootLogin = mkOption {
            type = types.nullOr (
              types.enum [
                "yes"
                "without-password"
                "prohibit-password"
                "forced-commands-only"
                "no"
              ]
            );
            default = "prohibit-password";
            description = "Whether root may log in.";
          };
          PasswordAuthentication = mkOption {
            type = types.nullOr types.bool;
            default = true;
            description = "Whether passwords may log in.";
          };
          KbdInteractiveAuthentication = mkOption {
            type = types.nullOr types.bool;
            default = true;
            description = "Whether sshd may ask questions.";
          };
          X11Forwarding = mkOption {
            type = types.nullOr types.bool;
            default = false;
            description = "Whether X11 is forwarded.";
          };
        };
      };
      default = { };
      description = "Settings of sshd.";
    };
    extraConfig = mkOption {
      type = types.lines;
      default = "";
      description = "Lines at the end of sshd's configuration.";
    };
  };

  config = lib.mkIf cfg.enable {
    services.openssh.authorizedKeysFiles = [
      "%h/.ssh/authorized_keys"
      "/etc/ssh/authorized_keys.d/%u"
    ];
    networking.firewall.allowedTCPPorts = lib.mkIf cfg.openFirewall cfg.ports;

    environment.etc."ssh/sshd_config.d/50-nixos.conf".text =
      lib.concatMapStrings (p: "Port ${toString p}\n") cfg.ports
      + "AuthorizedKeysFile ${lib.concatStringsSep " " cfg.authorizedKeysFiles}\n"
      + lib.concatStrings (
        lib.mapAttrsToList (n: v: lib.optionalString (v != null) "${n} ${show v}\n") cfg.settings
      )
      + cfg.extraConfig;

    # Debian calls the unit ssh; a reload keeps the connections that are open.
    systemd.services.ssh = {
      overrideStrategy = "asDropin";
      reloadTriggers = [ config.environment.etc."ssh/sshd_config.d/50-nixos.conf".source ];
    };
  };
}
