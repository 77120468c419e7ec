{ config, lib, ... }:
let
  inherit (lib) mkOption types;
  cfg = config.systemd.tmpfiles;

  rule =
    { name, ... }:
    {
      options = {
        type = mkOption {
          type = types.str;
          default = name;
          description = "The letter of the rule.";
        };
        mode = mkOption {
          type = types.str;
          default = "-";
          example = "0755";
          description = "Mode of the file.";
        };
        user = mkOption {
          type = types.str;
          default = "-";
          description = "Owner of the file.";
        };
        group = mkOption {
          type = types.str;
          default = "-";
          description = "Group of the file.";
        };
        age = mkOption {
          type = types.str;
          default = "-";
          example = "10d";
          description = "Age after which it is cleaned up.";
        };
        argument = mkOption {
          type = types.str;
          default = "";
          description = "Text, target or value, by type.";
        };
      };
    };

  # systemd-tmpfiles reads C escapes in the last field.
  escaped = builtins.replaceStrings [ "\n" "\t" ] [ "\\n" "\\t" ];
  line =
    path: r: "'${r.type}' '${path}' '${r.mode}' '${r.user}' '${r.group}' '${r.age}' ${escaped r.argument}\n";
  fileText =
    paths:
    lib.concatStrings (
      lib.concatLists (
        lib.mapAttrsToList (path: rules: map (line path) (lib.attrValues rules)) paths
      )
    );
in
{
  options.systemd.tmpfiles = {
    rules = mkOption {
      type = types.listOf types.str;
      default = [ ];
      example = [ "d /tmp 1777 root root 10d" ];
      description = "Lines in the syntax of tmpfiles.d.";
    };
    settings = mkOption {
      type = types.attrsOf (types.attrsOf (types.attrsOf (types.submodule rule)));
      default = { };
      example = {
        "10-mypackage"."/var/lib/my-service/statefolder".d = {
          mode = "0755";
          user = "root";
          group = "root";
        };
      };
      description = "Rules by file, path and letter.";
    };
    packages = mkOption {
      type = types.listOf types.package;
      default = [ ];
      description = "Packages with rules in lib/tmpfiles.d; not linked here.";
    };
  };

  config = {
    assertions = [
      {
        assertion = cfg.packages == [ ];
        message = "The mini NixOS does not link systemd.tmpfiles.packages.";
      }
    ];
    environment.etc = {
      "tmpfiles.d/00-nixos.conf".text = ''
        # This file is created automatically and should not be modified.
        # Please change the option ‘systemd.tmpfiles.rules’ instead.

        ${lib.concatStringsSep "\n" cfg.rules}
      '';
    }
    // lib.mapAttrs' (
      name: paths: lib.nameValuePair "tmpfiles.d/${name}.conf" { text = fileText paths; }
    ) cfg.settings;
  };
}
