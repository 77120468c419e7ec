# Nix on the node. The guest's daemon runs; we write its configuration.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib) mkOption types;
  cfg = config.nix;

  atom = types.nullOr (
    types.oneOf [
      types.bool
      types.int
      types.float
      types.str
      types.path
      types.package
    ]
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
in
{
  options.nix = {
    enable = mkOption {
      type = types.bool;
      default = true;
      description = "Whether to configure Nix; false leaves the guest's alone.";
    };
    package = mkOption {
      type = types.package;
      default = pkgs.nix;
      defaultText = lib.literalExpression "pkgs.nix";
      description = "The Nix package.";
    };
    extraOptions = mkOption {
      type = types.lines;
      default = "";
      example = "keep-outputs = true";
      description = "Lines at the end of nix.conf.";
    };
    settings = mkOption {
      type = types.submodule {
        freeformType = types.attrsOf (types.either atom (types.listOf atom));
        options = {
          trusted-users = mkOption {
            type = types.listOf types.str;
            example = [ "@wheel" ];
            description = "Users that the daemon obeys.";
          };
          substituters = mkOption {
            type = types.listOf types.str;
            default = [ ];
            example = [ "https://cache.example.org" ];
            description = "Binary caches. None by default: the tests have no network.";
          };
          experimental-features = mkOption {
            type = types.listOf types.str;
            default = [ ];
            example = [ "flakes" ];
            description = "Features to turn on.";
          };
          sandbox = mkOption {
            type = types.either types.bool (types.enum [ "relaxed" ]);
            default = true;
            description = "Whether builds run in a sandbox.";
          };
        };
      };
      default = { };
      description = "Settings in nix.conf.";
    };
    gc = {
      automatic = mkOption {
        type = types.bool;
        default = false;
        description = "Whether to collect garbage regularly.";
      };
      dates = mkOption {
        type = types.either types.singleLineStr (types.listOf types.str);
        default = [ "03:15" ];
        description = "When.";
      };
      options = mkOption {
        type = types.singleLineStr;
        default = "";
        example = "--delete-older-than 30d";
        description = "Options of nix-collect-garbage.";
      };
    };
    optimise.automatic = mkOption {
      type = types.bool;
      default = false;
      description = "Whether to hard-link equal files; nothing does it here.";
    };
    channel.enable = mkOption {
      type = types.bool;
      default = true;
      description = "Whether channels exist; they do not here.";
    };
    nixPath = mkOption {
      type = types.listOf types.str;
      default = [ ];
      example = [ "nixpkgs=/etc/nixpkgs" ];
      description = "The search path of Nix.";
    };
  };

  config = lib.mkIf cfg.enable {
    nix.settings = {
      trusted-users = [ "root" ];
      nix-path = lib.mkIf (cfg.nixPath != [ ]) cfg.nixPath;
    };

    environment.etc."nix/nix.conf".text =
      # Compiled into NixOS' Nix, but not into the guest's.
      lib.optionalString (!cfg.settings ? build-users-group) "build-users-group = nixbld\n"
      + lib.concatStrings (
        lib.mapAttrsToList (n: v: "${n} = ${show v}\n") cfg.settings
      )
      + cfg.extraOptions;

    systemd.services.nix-daemon = {
      restartTriggers = [ config.environment.etc."nix/nix.conf".source ];
      # Whoever switches this node is connected through it: as short a gap as can be.
      stopIfChanged = false;
    };

    systemd.services.nix-gc = lib.mkIf cfg.gc.automatic {
      description = "Nix Garbage Collector";
      script = "exec ${cfg.package}/bin/nix-collect-garbage ${cfg.gc.options}";
      serviceConfig.Type = "oneshot";
      startAt = cfg.gc.dates;
    };
  };
}
