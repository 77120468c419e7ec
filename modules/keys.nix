# The units on a node for `deployment.keys`. The activation sets the owner of pre-activation
# keys after it has created the users. For a key `db`, `db-key.service` is active while the
# key exists.
#
# A unit that needs the key `db` should have `after` and `requires` (or `bindsTo`)
# `db-key.service`. The unit then waits for the key, stops when the key is removed, and
# starts again when the key exists again. A unit that needs a post-activation key should
# only be `wantedBy` `db-key.service`: if a target wanted the unit, the switch would wait
# for a key that is uploaded after the switch.
#
# This module must not read `text`, `keyFile` or `keyCommand`, because the system that it
# is part of is in the world-readable store.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib)
    escapeShellArg
    filterAttrs
    mapAttrs'
    mapAttrsToList
    nameValuePair
    ;
  inherit (config.deployment) keys;

  # -- owners ----------------------------------------------------------------

  early = filterAttrs (_: key: key.uploadAt == "pre-activation") keys;

  # The owner is set before the mode. In the other order, the previous group could read the
  # key for a moment. A symbolic link is skipped, because nixbench uploads only files. A missing
  # key is no error, because keys in /run are missing at each boot: the upload sets the owner.
  setOwner = key: ''
    key=${escapeShellArg key.path}
    if [ -f "$key" ] && [ ! -L "$key" ]; then
      if ! chown -- ${escapeShellArg "${key.user}:${key.group}"} "$key" || ! chmod -- ${escapeShellArg key.permissions} "$key"; then
        keysFailed=1
      fi
    fi
  '';

  # A script that sets the owners of all keys. After an error, it continues with the other
  # keys, and fails at the end.
  setOwners = ''
    # All of them, before we fail.
    keysFailed=
    ${lib.concatStrings (mapAttrsToList (_: setOwner) early)}
    if [ -n "$keysFailed" ]; then
      echo "Some keys did not get their owner." >&2
      false
    fi
  '';

  # Whether a unit creates the users after the activation, instead of the activation.
  usersLater = config.services.userborn.enable or false || config.systemd.sysusers.enable or false;

  # -- units -----------------------------------------------------------------

  # Replaces characters that unit names must not contain as systemd-escape does. Dashes stay,
  # because users expect the name `db-password-key.service`.
  escapeUnitName = builtins.replaceStrings (lib.stringToCharacters " !\"#$%&'()*+,/;<=>?[]^`{|}~") [
    "\\x20"
    "\\x21"
    "\\x22"
    "\\x23"
    "\\x24"
    "\\x25"
    "\\x26"
    "\\x27"
    "\\x28"
    "\\x29"
    "\\x2a"
    "\\x2b"
    "\\x2c"
    "\\x2f"
    "\\x3b"
    "\\x3c"
    "\\x3d"
    "\\x3e"
    "\\x3f"
    "\\x5b"
    "\\x5d"
    "\\x5e"
    "\\x60"
    "\\x7b"
    "\\x7c"
    "\\x7d"
    "\\x7e"
  ];
  unitName = name: "${escapeUnitName name}-key";
  keysWithUnit = filterAttrs (name: _: builtins.match "[]a-zA-Z0-9:_.@\\-]+" (unitName name) != null) keys;

  # systemd expands specifiers such as %n in unit files.
  escapeSpecifiers = builtins.replaceStrings [ "%" ] [ "%%" ];
in
{
  # implementation
  config = lib.mkIf (keys != { }) {
    # If this script fails, the activation continues, and fails at the end.
    system.activationScripts.nixbench-chown-keys = lib.mkIf (early != { } && !usersLater) (
      lib.stringAfter (
        [ "users" ] ++ lib.optional (config.system.activationScripts ? groups) "groups"
      ) setOwners
    );

    systemd.paths = mapAttrs' (
      name: key:
      nameValuePair (unitName name) {
        description = "Arrival of the key ${escapeSpecifiers name}";
        wantedBy = [ "paths.target" ];
        pathConfig.PathExists = escapeSpecifiers key.path;
      }
    ) keysWithUnit;

    systemd.services = lib.mkMerge [
      (lib.mkIf (early != { } && usersLater) {
        nixbench-chown-keys = {
          description = "Owners of keys";
          # userborn's unit has this name as an alias.
          after = [
            "systemd-sysusers.service"
            "local-fs.target"
          ];
          before = [
            "sysinit.target"
            "sysinit-reactivation.target"
          ];
          wantedBy = [ "sysinit.target" ];
          requiredBy = [ "sysinit-reactivation.target" ];
          unitConfig.DefaultDependencies = false;
          serviceConfig = {
            Type = "oneshot";
            ExecStart = pkgs.writeShellScript "nixbench-chown-keys" setOwners;
          };
        };
      })
      # A path unit detects that a file is created, but not that the file is removed (systemd
      # issue 3642), and it detects nothing while the service is starting. So the service
      # watches the file with GNU tail, which every NixOS has: tail uses inotify, follows a
      # file name through renames and replacements, and checks every second while the folder
      # is missing. The contents of the file are written to /dev/null.
      (mapAttrs' (
        name: key:
        nameValuePair (unitName name) {
          description = "Presence of the key ${escapeSpecifiers name}";
          # No start limit, because a key may be created and removed any number of times.
          startLimitIntervalSec = 0;
          # If a post-activation key is missing, a restart by switch-to-configuration would
          # never end.
          restartIfChanged = key.uploadAt == "pre-activation";
          serviceConfig = {
            TimeoutStartSec = "infinity";
            Restart = "always";
            RestartSec = "100ms";
          };

          # Units that are ordered after this service wait for this script. The script checks
          # whether the key exists after every line that tail prints, and every five seconds,
          # because tail prints nothing if a file is removed and created again within a
          # moment. tail uses inotify only if at least one of its files exists, so the file
          # of this script is the second file. After five seconds, the script checks whether
          # a switch has changed the unit without a restart, because the path of the key may
          # have changed. If tail fails, the script must not fail, because the waiting units
          # would then start without the key.
          preStart = ''
            key=${escapeShellArg key.path}
            unit=${escapeShellArg "${unitName name}.service"}
            [ ! -e "$key" ] || exit 0 # without tail, because a switch may start many of these units
            exec 3< <(exec tail -n 0 -F -- "$key" "$0" 2>&1 >/dev/null)
            until [ -e "$key" ]; do
              status=0
              read -r -t 5 _ <&3 || status=$?
              [ "$status" != 0 ] || continue
              # Whatever happens to tail: a failure here would let in who waits.
              [ "$status" -gt 128 ] || sleep 5
              if ! grep -qF -e "$0" -- "/etc/systemd/system/$unit"; then
                systemctl --no-block restart -- "$unit"
                exec sleep infinity
              fi
            done
            kill "$!" 2>/dev/null || true
            wait "$!" || true
          '';

          # tail ends when the file is removed. The script then restarts the service, so that
          # units which are bound to the service start again when the key exists again. tail
          # sometimes also ends when several files of a folder are replaced at the same time; the
          # key then exists, and the units must not be restarted. The service can outlive its unit
          # file: a switch to a system without the key stops the service before the path unit, which
          # starts the service once more while the key exists. It then stops, because a restart fails.
          script = ''
            key=${escapeShellArg key.path}
            while
              tail -n 0 --follow=name --max-unchanged-stats=1 -- "$key" >/dev/null 2>&1 || true
              [ -e "$key" ]
            do
              sleep 1
            done
            unit=${escapeShellArg "${unitName name}.service"}
            systemctl --no-block restart -- "$unit" || systemctl --no-block stop -- "$unit"
            exec sleep infinity
          '';
        }
      ) keysWithUnit)
    ];
  };
}
