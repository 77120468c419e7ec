# The activation script: snippets in the order of their dependencies.
{ config, lib, pkgs, ... }:
let
  inherit (lib) mkOption types;
  inherit (import ../../../lib/option.nix { inherit lib; }) option required;

  snippet = types.submodule {
    options = {
      deps = option (types.listOf types.str) [ ] "Snippets that come first.";
      text = required types.lines "Shell commands.";
      supportsDryActivation =
        option types.bool false
          "Whether it looks at NIXOS_ACTION, and so may run in a dry activation.";
    };
  };
  scriptType = types.either types.str snippet;
  entry = v: if builtins.isString v then lib.noDepEntry v // { supportsDryActivation = false; } else v;

  # A failing command changes the exit code, and the remaining snippets still run, because a
  # node that is only partly activated is worse.
  withReport = name: s: s // { text = "failure=\n${s.text}\nreport ${lib.escapeShellArg name}"; };

  script =
    snippets: tail:
    let
      known = lib.mapAttrs withReport snippets;
    in
    ''
      #!${pkgs.runtimeShell}
      # The guest's programs: everything Debian calls essential.
      export PATH=/usr/sbin:/usr/bin:/sbin:/bin
      systemConfig=@out@
      umask 0022

      flaws=0 failure=
      trap 'failure=$? flaws=1' ERR
      report() {
        [ -z "$failure" ] || printf "Activation script snippet '%s' failed (%s)\n" "$1" "$failure"
      }

      ${lib.textClosureMap lib.id known (lib.attrNames known)}

    ''
    + tail
    + "exit $flaws\n";

  dryOnly = lib.mapAttrs (
    _: s: if s.supportsDryActivation then s else s // { text = ":"; }
  ) config.system.activationScripts;
in
{
  options.system = {
    activationScripts = mkOption {
      type = types.attrsOf scriptType;
      default = { };
      apply = lib.mapAttrs (_: entry);
      description = "Shell commands that run at each activation and boot.";
    };
    userActivationScripts =
      option (types.attrsOf scriptType) { }
        "Shell commands that run for each user, at the login and at each switch.";
    dryActivationScript = mkOption {
      type = types.lines;
      default = script dryOnly "";
      readOnly = true;
      description = "The script of a dry activation.";
    };
    build.activationScript = required types.str "The activation script, before it knows the system's path.";
  };

  config.system.build.activationScript = script config.system.activationScripts ''
    # From here on this is the running system.
    [ /run/current-system -ef "$systemConfig" ] || ln -sfn "$systemConfig" /run/current-system
  '';

  config.systemd.user.services.nixos-activation =
    lib.mkIf (config.system.userActivationScripts != { })
      {
        description = "Run user-specific NixOS activation";
        script =
          let
            scripts = lib.mapAttrs (_: entry) config.system.userActivationScripts;
          in
          lib.textClosureMap lib.id scripts (lib.attrNames scripts);
        unitConfig.ConditionUser = "!@system";
        # switch-to-configuration restarts it at each switch.
        restartIfChanged = false;
        serviceConfig = {
          Type = "oneshot";
          RemainAfterExit = true;
        };
        wantedBy = [ "default.target" ];
      };

  config.system.activationScripts = {
    # Names that snippets of other modules may depend on.
    stdio = "";
    specialfs = "";
    binsh = "";
    usrbinenv = "";
    hashes = {
      deps = [ "users" ];
      text = "";
    };
    var = ''
      [ -d /var/tmp ] && [ -d /var/log ] && [ -d /var/lib ] && [ -d /var/empty ] ||
        mkdir -p /var/tmp /var/log /var/lib /var/empty
      [ -k /var/tmp ] || chmod 1777 /var/tmp
    '';
    nix = lib.stringAfter [ "etc" "users" ] ''
      [ -d /nix/var/nix/gcroots ] || mkdir -p /nix/var/nix/gcroots
      [ -L /nix/var/nix/gcroots/current-system ] || ln -sfn /run/current-system /nix/var/nix/gcroots/current-system
    '';
  };
}
