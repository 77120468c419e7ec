# Which package set the system is built from.
{
  config,
  lib,
  options,
  ...
}:
let
  inherit (lib) mkOption types;
  cfg = config.nixpkgs;
  opt = options.nixpkgs;

  system =
    if opt.hostPlatform.isDefined then
      cfg.hostPlatform.system
    else if opt.localSystem.isDefined then
      cfg.localSystem.system
    else
      cfg.system;

  final =
    if opt.pkgs.isDefined then
      cfg.pkgs.appendOverlays cfg.overlays
    else
      import ../../.. {
        inherit lib system;
        inherit (cfg) config overlays;
      };

  # nixpkgs' configuration: nested sets add up, the last word wins elsewhere.
  configType = lib.mkOptionType {
    name = "nixpkgs-config";
    description = "nixpkgs config";
    check = v: builtins.isAttrs v || lib.isFunction v;
    merge =
      _loc:
      lib.foldl' (
        acc: d:
        lib.recursiveUpdate acc (if lib.isFunction d.value then d.value { pkgs = final; } else d.value)
      ) { };
  };

  overlayType = lib.mkOptionType {
    name = "nixpkgs-overlay";
    description = "nixpkgs overlay";
    check = lib.isFunction;
    merge = lib.mergeOneOption;
  };

  platformType = types.either types.str types.attrs;
in
{
  options.nixpkgs = {
    pkgs = mkOption {
      type = types.pkgs // {
        description = "An evaluation of Nixpkgs; the top level attribute set of packages";
      };
      defaultText = lib.literalExpression "import <nixpkgs> { inherit (config.nixpkgs) config overlays hostPlatform; }";
      example = lib.literalExpression "import <nixpkgs> { }";
      description = "The package set. When set, only `nixpkgs.overlays` still changes it.";
    };

    config = mkOption {
      type = configType;
      default = { };
      example = {
        allowUnfree = true;
      };
      description = "Nixpkgs' configuration.";
    };

    overlays = mkOption {
      type = types.listOf overlayType;
      default = [ ];
      example = lib.literalExpression "[ (final: prev: { hello = prev.hello; }) ]";
      description = "Overlays to apply to Nixpkgs, from first to last.";
    };

    hostPlatform = mkOption {
      type = platformType;
      apply = lib.systems.elaborate;
      example = "x86_64-linux";
      description = "The platform the system runs on.";
    };

    buildPlatform = mkOption {
      type = platformType;
      default = cfg.hostPlatform;
      defaultText = lib.literalExpression "config.nixpkgs.hostPlatform";
      apply = lib.systems.elaborate;
      example = "x86_64-linux";
      description = "The platform the system is built on.";
    };

    localSystem = mkOption {
      type = types.attrs;
      apply = lib.systems.elaborate;
      example = {
        system = "aarch64-linux";
      };
      description = "An older way to say hostPlatform.";
    };

    system = mkOption {
      type = types.str;
      example = "i686-linux";
      description = "An older way to say hostPlatform, and what eval-config.nix sets.";
    };
  };

  config = {
    _module.args.pkgs = final;

    assertions = [
      {
        assertion = opt.pkgs.isDefined -> cfg.config == { };
        message = ''
          Your system configures nixpkgs with an externally created instance.
          `nixpkgs.config` options should be passed when creating the instance instead.

          Current value:
          ${lib.generators.toPretty { multiline = true; } cfg.config}

          Defined in:
          ${lib.concatMapStringsSep "\n" (file: "  - ${file}") opt.config.files}
        '';
      }
    ];
  };
}
