# Which package set the system is built from.
{ config, lib, options, ... }:
let
  inherit (lib) mkOption types;
  inherit (import ../../lib/option.nix { inherit lib; }) option required;
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
      import ../../.. { inherit lib system; inherit (cfg) config overlays; };

  # nixpkgs' configuration: nested sets are merged, otherwise the last definition counts.
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
    pkgs = required types.pkgs "The package set. When set, only `nixpkgs.overlays` still changes it.";

    config = option configType { } "Nixpkgs' configuration.";

    overlays = option (types.listOf overlayType) [ ] "Changes to the package set, in this order.";

    hostPlatform = mkOption {
      type = platformType;
      apply = lib.systems.elaborate;
      description = "The platform the system runs on.";
    };

    buildPlatform = mkOption {
      type = platformType;
      default = cfg.hostPlatform;
      apply = lib.systems.elaborate;
      description = "The platform the system is built on.";
    };

    localSystem = mkOption {
      type = types.attrs;
      apply = lib.systems.elaborate;
      description = "An older way to say hostPlatform.";
    };

    system = required types.str "An older way to say hostPlatform, and what eval-config.nix sets.";
  };

  config = {
    _module.args.pkgs = final;

    assertions = [
      {
        assertion = opt.pkgs.isDefined -> cfg.config == { };
        message =
          "nixpkgs.config has no effect on a package set that was made elsewhere (nixpkgs.pkgs); it is set in "
          + lib.showFiles opt.config.files;
      }
    ];
  };
}
