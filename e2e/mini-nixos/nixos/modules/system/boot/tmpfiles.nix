{ config, lib, ... }:
let
  inherit (lib) types;
  inherit (import ../../../lib/option.nix { inherit lib; }) option;
  cfg = config.systemd.tmpfiles;

  rule =
    { name, ... }:
    {
      options = {
        type = option types.str name "The letter of the rule.";
        mode = option types.str "-" "Mode of the file.";
        user = option types.str "-" "Owner of the file.";
        group = option types.str "-" "Group of the file.";
        age = option types.str "-" "Age after which it is cleaned up.";
        argument = option types.str "" "Text, target or value, by type.";
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
    rules = option (types.listOf types.str) [ ] "Lines in the syntax of tmpfiles.d.";
    settings =
      option (types.attrsOf (types.attrsOf (types.attrsOf (types.submodule rule)))) { }
        "Rules by file, path and letter.";
    packages =
      option (types.listOf types.package) [ ]
        "Packages with rules in lib/tmpfiles.d; not linked here.";
  };

  config = {
    assertions = [
      {
        assertion = cfg.packages == [ ];
        message = "The mini NixOS does not link systemd.tmpfiles.packages.";
      }
    ];
    environment.etc = {
      "tmpfiles.d/00-nixos.conf".text = lib.concatLines cfg.rules;
    }
    // lib.mapAttrs' (
      name: paths: lib.nameValuePair "tmpfiles.d/${name}.conf" { text = fileText paths; }
    ) cfg.settings;

    # Started by a switch, and restarted by one that changes a rule. The boot has a service of its own.
    systemd.services.systemd-tmpfiles-resetup = {
      description = "Apply changed rules for temporary files";
      requiredBy = [ "sysinit-reactivation.target" ];
      before = [
        "sysinit-reactivation.target"
        "shutdown.target"
      ];
      after = [ "local-fs.target" ];
      conflicts = [ "shutdown.target" ];
      restartTriggers = [
        cfg.rules
        (lib.mapAttrsToList (_: fileText) cfg.settings)
      ];
      unitConfig.DefaultDependencies = false;
      enableDefaultPath = false;
      serviceConfig = {
        Type = "oneshot";
        RemainAfterExit = true;
        ExecStart = "${config.systemd.package}/bin/systemd-tmpfiles --create --remove --exclude-prefix=/dev";
        SuccessExitStatus = "DATAERR CANTCREAT";
      };
    };
  };
}
