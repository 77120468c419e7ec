# What the system calls itself.
{
  config,
  lib,
  options,
  ...
}:
let
  inherit (lib) mkOption types;
  cfg = config.system.nixos;
in
{
  options.system = {
    nixos = {
      version = mkOption {
        type = types.str;
        default = cfg.release + cfg.versionSuffix;
        defaultText = "the release with its suffix";
        internal = true;
        description = "The full NixOS version.";
      };
      release = mkOption {
        type = types.str;
        readOnly = true;
        default = "25.05";
        description = "The NixOS release.";
      };
      versionSuffix = mkOption {
        type = types.str;
        internal = true;
        default = "pre-mini";
        description = "What follows the release in the version.";
      };
      revision = mkOption {
        type = types.nullOr types.str;
        internal = true;
        default = null;
        description = "The revision of nixpkgs.";
      };
      codeName = mkOption {
        type = types.str;
        readOnly = true;
        default = "Mini";
        description = "The release's name.";
      };
      distroId = mkOption {
        type = types.str;
        internal = true;
        default = "nixos";
        description = "ID in os-release; switch-to-configuration compares it.";
      };
      distroName = mkOption {
        type = types.str;
        internal = true;
        default = "NixOS";
        description = "NAME in os-release.";
      };
      tags = mkOption {
        type = types.listOf types.str;
        default = [ ];
        example = [ "with-xen" ];
        description = "Words that go into the label.";
      };
      label = mkOption {
        type = types.strMatching "[a-zA-Z0-9:_\\.-]*";
        default = lib.concatStringsSep "-" (lib.sort lib.lessThan cfg.tags ++ [ cfg.version ]);
        defaultText = "the tags and the version";
        example = "with-xen-25.05";
        description = "What generations are called, part of the system's store path.";
      };
    };

    stateVersion = mkOption {
      type = types.str;
      default = cfg.release;
      defaultText = "the release";
      example = "25.05";
      description = "The release this machine was first installed with.";
    };

    configurationRevision = mkOption {
      type = types.nullOr types.str;
      default = null;
      example = "abc123";
      description = "The revision of the configuration itself.";
    };
  };

  config = {
    warnings =
      lib.optional
        (
          options.system.stateVersion.highestPrio == (lib.mkOptionDefault { }).priority
        )
        "system.stateVersion is not set, defaulting to ${config.system.stateVersion}. Read why this matters on https://nixos.org/manual/nixos/stable/options.html#opt-system.stateVersion.";

    environment.etc.os-release.text = lib.generators.toKeyValue { } (
      lib.mapAttrs (_: v: "\"${v}\"") {
        ID = cfg.distroId;
        ID_LIKE = "debian";
        NAME = cfg.distroName;
        PRETTY_NAME = "${cfg.distroName} ${cfg.release} (${cfg.codeName})";
        VERSION = "${cfg.release} (${cfg.codeName})";
        VERSION_CODENAME = lib.toLower cfg.codeName;
        VERSION_ID = cfg.release;
      }
    );
  };
}
