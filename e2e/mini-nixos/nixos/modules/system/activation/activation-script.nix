# The activation script: snippets in the order of their dependencies.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib) mkOption types;

  snippet = types.submodule {
    options = {
      deps = mkOption {
        type = types.listOf types.str;
        default = [ ];
        description = "Snippets that come first.";
      };
      text = mkOption {
        type = types.lines;
        description = "Shell commands.";
      };
      supportsDryActivation = mkOption {
        type = types.bool;
        default = false;
        description = "Whether it looks at NIXOS_ACTION, and so may run in a dry activation.";
      };
    };
  };
  scriptType = types.either types.str snippet;
  entry = v: if builtins.isString v then lib.noDepEntry v // { supportsDryActivation = false; } else v;

  # A failing command is remembered and the rest still runs: a node half-way is
  # worse than one with a flaw.
  withStatus =
    name: s:
    s
    // {
      text = ''
        #### Activation script snippet ${name}:
        _localstatus=0
        ${s.text}

        if (( _localstatus > 0 )); then
          printf "Activation script snippet '%s' failed (%s)\n" ${lib.escapeShellArg name} "$_localstatus"
        fi
      '';
    };

  script =
    snippets: tail:
    let
      known = lib.mapAttrs withStatus snippets;
    in
    ''
      #!${pkgs.runtimeShell}

      systemConfig='@out@'

      # The guest's programs: everything Debian calls essential.
      export PATH=/usr/sbin:/usr/bin:/sbin:/bin

      _status=0
      trap "_status=1 _localstatus=\$?" ERR

      umask 0022

      ${lib.textClosureMap lib.id known (lib.attrNames known)}

    ''
    + tail;

  dryOnly = lib.mapAttrs (
    _: s: if s.supportsDryActivation then s else s // { text = "#### skipped in a dry activation"; }
  ) config.system.activationScripts;
in
{
  options.system = {
    activationScripts = mkOption {
      type = types.attrsOf scriptType;
      default = { };
      apply = lib.mapAttrs (_: entry);
      example = lib.literalExpression ''
        { stdio.text = "echo hello"; late = { deps = [ "users" ]; text = "echo bye"; }; }
      '';
      description = "Shell commands that run at each activation and boot.";
    };
    userActivationScripts = mkOption {
      type = types.attrsOf scriptType;
      default = { };
      description = "Shell commands at each login; kept, not run.";
    };
    dryActivationScript = mkOption {
      type = types.lines;
      internal = true;
      readOnly = true;
      default = script dryOnly "exit $_status\n";
      defaultText = "the generated script";
      description = "The script of a dry activation.";
    };
    build.activationScript = mkOption {
      type = types.str;
      internal = true;
      description = "The activation script, before it knows the system's path.";
    };
  };

  config.system.build.activationScript = script config.system.activationScripts ''
    # From here on this is the running system. A link to a link would not keep it
    # from the garbage collector.
    ln -sfn "$(readlink -f "$systemConfig")" /run/current-system

    exit $_status
  '';

  config.system.activationScripts = {
    # Names that snippets of other modules come after.
    stdio = "";
    specialfs = "";
    binsh = "";
    usrbinenv = "";
    hashes = {
      deps = [ "users" ];
      text = "";
    };
    var = ''
      mkdir -p /var/tmp /var/log /var/lib /var/empty
      chmod 1777 /var/tmp
    '';
    nix = lib.stringAfter [ "etc" "users" ] ''
      mkdir -p /nix/var/nix/gcroots
      ln -sfn /run/current-system /nix/var/nix/gcroots/current-system
    '';
  };
}
