# Nix on the node: the configuration of the guest's daemon.
{ config, lib, pkgs, ... }:
let
  inherit (lib) types;
  inherit (import ../../lib/option.nix { inherit lib; }) option required;
  cfg = config.nix;

  atom = types.nullOr (
    types.oneOf [ types.bool types.int types.float types.str types.path types.package ]
  );
  show =
    v:
    if v == null then
      ""
    else if builtins.isBool v then
      lib.boolToString v
    else if builtins.isList v then
      lib.concatMapStringsSep " " show v
    else
      toString v;
  lines =
    isWanted:
    lib.concatStrings (
      lib.mapAttrsToList (n: v: "${n} = ${show v}\n") (lib.filterAttrs (n: _: isWanted n) cfg.settings)
    );
in
{
  options.nix = {
    enable = option types.bool true "Whether to configure Nix; false leaves the guest's alone.";
    package = option types.package pkgs.nix "The Nix package.";
    extraOptions = option types.lines "" "Lines at the end of nix.conf.";
    settings = option (types.submodule {
        freeformType = types.attrsOf (types.either atom (types.listOf atom));
        options = {
          trusted-users = required (types.listOf types.str) "Users that the daemon obeys.";
          substituters =
            option (types.listOf types.str) [ ]
              "Binary caches. None by default: the tests have no network.";
          sandbox =
            option (types.either types.bool (types.enum [ "relaxed" ])) true
              "Whether builds run in a sandbox.";
        };
      }) { } "Settings in nix.conf.";
    gc = {
      automatic = option types.bool false "Whether to collect garbage regularly.";
      dates = option (types.either types.singleLineStr (types.listOf types.str)) [ "03:15" ] "When.";
      options = option types.singleLineStr "" "Options of nix-collect-garbage.";
    };
    optimise.automatic = option types.bool false "Whether to hard-link equal files; nothing does it here.";
    channel.enable = option types.bool true "Whether channels exist; they do not here.";
    nixPath = option (types.listOf types.str) [ ] "The search path of Nix.";
  };

  config = lib.mkIf cfg.enable {
    nix.settings = {
      trusted-users = [ "root" ];
      nix-path = lib.mkIf (cfg.nixPath != [ ]) cfg.nixPath;
    };

    environment.etc."nix/nix.conf".text =
      # Compiled into NixOS' Nix, but not into the guest's.
      lib.optionalString (!cfg.settings ? build-users-group) "build-users-group = nixbld\n"
      + lines (n: !lib.hasPrefix "extra-" n)
      # They add to the other settings, so they come last.
      + lines (lib.hasPrefix "extra-")
      + cfg.extraOptions;

    systemd.services.nix-daemon = {
      restartTriggers = [ config.environment.etc."nix/nix.conf".source ];
      # The switch's connection may go through the daemon, so it restarts in one step.
      stopIfChanged = false;
    };

    systemd.services.nix-gc = lib.mkIf cfg.gc.automatic {
      description = "Garbage collection of the Nix store";
      script = "exec ${cfg.package}/bin/nix-collect-garbage ${cfg.gc.options}";
      serviceConfig.Type = "oneshot";
      startAt = cfg.gc.dates;
    };
  };
}
