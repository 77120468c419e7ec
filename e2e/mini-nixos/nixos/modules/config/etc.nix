# Files below /etc.
{ config, lib, pkgs, ... }:
let
  inherit (lib) types;
  inherit (import ../../lib/option.nix { inherit lib; }) option required;

  entries = lib.filter (e: e.enable) (lib.attrValues config.environment.etc);
  quote = lib.escapeShellArg;

  # Text without dependencies needs no build: a sandbox for each of dozens of little files
  # would be slow.
  fileFor =
    name: text:
    let
      file = lib.strings.sanitizeDerivationName "etc-${baseNameOf name}";
    in
    if builtins.hasContext text then pkgs.writeText file text else builtins.toFile file text;

  # With a mode the file is a copy, whose mode and owner are in files beside it, as in NixOS.
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
  options.environment.etc = option (types.attrsOf (
      types.submodule (
        { name, config, options, ... }:
        {
          options = {
            enable = option types.bool true "Whether the file exists.";
            target = option types.str name "Path below /etc.";
            text = option (types.nullOr types.lines) null "Text of the file.";
            source = required types.path "Path of the source file.";
            mode = option types.str "symlink" "`symlink`, `direct-symlink`, or the mode of a copy.";
            uid = option types.int 0 "UID of the copy.";
            gid = option types.int 0 "GID of the copy.";
            user = option types.str "+${toString config.uid}" "User name of the copy's owner.";
            group = option types.str "+${toString config.gid}" "Group name of the copy.";
          };

          config = {
            source = lib.mkIf (config.text != null) (
              lib.mkDerivedConfig options.text (fileFor name)
            );
          };
        }
      )
    )) { } "What lies below /etc.";

  options.system.build.etc = required types.package "The tree of /etc.";

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
    # The guest has its own units in these directories, so they remain directories, and each unit
    # of the system is linked into them.
    putUnits() {
      cd "$1"
      find . ! -type d | while read -r unit; do
        put "$1/''${unit#./}" "systemd/$2/''${unit#./}"
      done
    }
    putUnits ${config.system.build.units} system
    ${lib.optionalString (
      config.system.build.userUnits != null
    ) "putUnits ${config.system.build.userUnits} user"}
  '';

  config.system.activationScripts.etc = lib.stringAfter [
    "users"
    "groups"
  ] (builtins.readFile ./setup-etc.sh);
}
