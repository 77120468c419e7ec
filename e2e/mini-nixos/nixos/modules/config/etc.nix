# Files below /etc.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib) mkOption types;

  entries = lib.filter (e: e.enable) (lib.attrValues config.environment.etc);
  quote = lib.escapeShellArg;

  # Text that refers to nothing needs no build: dozens of little files otherwise
  # cost a sandbox each.
  fileFor =
    name: text:
    let
      file = lib.strings.sanitizeDerivationName "etc-${baseNameOf name}";
    in
    if builtins.hasContext text then pkgs.writeText file text else builtins.toFile file text;

  # A mode makes it a copy, and copies carry their owner in files beside them,
  # as in NixOS.
  install = e: ''
    put ${quote "${e.source}"} ${quote e.target}
    ${lib.optionalString (e.mode != "symlink") ''
      note ${quote e.mode} ${quote "${e.target}.mode"}
      ${lib.optionalString (e.mode != "direct-symlink") ''
        note ${quote e.user} ${quote "${e.target}.uid"}
        note ${quote e.group} ${quote "${e.target}.gid"}
      ''}
    ''}
  '';
in
{
  options.environment.etc = mkOption {
    default = { };
    example = lib.literalExpression ''
      { motd.text = "hello"; "app/key" = { source = ./key; mode = "0440"; }; }
    '';
    description = "Files that have to be linked or copied into /etc.";
    type = types.attrsOf (
      types.submodule (
        {
          name,
          config,
          options,
          ...
        }:
        {
          options = {
            enable = mkOption {
              type = types.bool;
              default = true;
              description = "Whether this file should be generated.";
            };
            target = mkOption {
              type = types.str;
              default = name;
              description = "Path below /etc.";
            };
            text = mkOption {
              type = types.nullOr types.lines;
              default = null;
              description = "Text of the file.";
            };
            source = mkOption {
              type = types.path;
              description = "Path of the source file.";
            };
            mode = mkOption {
              type = types.str;
              default = "symlink";
              example = "0600";
              description = "`symlink`, `direct-symlink`, or the mode of a copy.";
            };
            uid = mkOption {
              type = types.int;
              default = 0;
              description = "UID of the copy.";
            };
            gid = mkOption {
              type = types.int;
              default = 0;
              description = "GID of the copy.";
            };
            user = mkOption {
              type = types.str;
              default = "+${toString config.uid}";
              description = "User name of the copy's owner.";
            };
            group = mkOption {
              type = types.str;
              default = "+${toString config.gid}";
              description = "Group name of the copy.";
            };
          };

          config = {
            source = lib.mkIf (config.text != null) (
              lib.mkDerivedConfig options.text (fileFor name)
            );
          };
        }
      )
    );
  };

  options.system.build.etc = mkOption {
    type = types.package;
    internal = true;
    description = "The tree of /etc.";
  };

  config.system.build.etc = pkgs.runCommand "etc" { } ''
    put() {
      if [ -e "$out/etc/$2" ] || [ -L "$out/etc/$2" ]; then
        if [ "$(readlink "$out/etc/$2")" != "$1" ]; then
          echo "duplicate entry $2 -> $1" >&2
          exit 1
        fi
      else
        mkdir -p "$(dirname "$out/etc/$2")"
        ln -s "$1" "$out/etc/$2"
      fi
    }
    note() {
      printf '%s\n' "$1" > "$out/etc/$2"
    }
    mkdir -p "$out/etc"
    ${lib.concatMapStrings install entries}
    # The guest has units of its own in this directory, so it stays a directory
    # and each of ours is linked into it.
    cd ${config.system.build.units}
    find . ! -type d | while read -r unit; do
      put ${config.system.build.units}/"''${unit#./}" "systemd/system/''${unit#./}"
    done
  '';

  config.system.activationScripts.etc = lib.stringAfter [
    "users"
    "groups"
  ] (builtins.readFile ./setup-etc.sh);
}
