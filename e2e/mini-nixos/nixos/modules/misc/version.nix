# The name and version of the system.
{ config, lib, options, ... }:
let
  inherit (lib) mkOption types;
  inherit (import ../../lib/option.nix { inherit lib; }) option;
  cfg = config.system.nixos;
in
{
  options.system = {
    nixos = {
      version = option types.str (cfg.release + cfg.versionSuffix) "The full NixOS version.";
      release = mkOption {
        type = types.str;
        default = "25.05";
        readOnly = true;
        description = "The NixOS release.";
      };
      versionSuffix = option types.str "pre-mini" "What follows the release in the version.";
      revision = option (types.nullOr types.str) null "The revision of nixpkgs.";
      codeName = mkOption {
        type = types.str;
        default = "Mini";
        readOnly = true;
        description = "The release's name.";
      };
      distroId = option types.str "nixos" "ID in os-release; switch-to-configuration compares it.";
      distroName = option types.str "NixOS" "NAME in os-release.";
      tags = option (types.listOf types.str) [ ] "Words that go into the label.";
      label =
        option (types.strMatching "[a-zA-Z0-9:_\\.-]*") (lib.concatStringsSep "-" (lib.sort lib.lessThan cfg.tags ++ [ cfg.version ]))
          "What generations are called, part of the system's store path.";
    };

    stateVersion = option types.str cfg.release "The release this machine was first installed with.";

    configurationRevision = option (types.nullOr types.str) null "The revision of the configuration itself.";
  };

  config = {
    warnings =
      lib.optional
        (
          options.system.stateVersion.highestPrio == (lib.mkOptionDefault { }).priority
        )
        "system.stateVersion is not set; ${config.system.stateVersion} is taken, and will change with the release.";

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
