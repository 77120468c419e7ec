# The node's part of `deployment.keys`: the activation sets the owner of pre-activation
# keys once users exist, and `db-key.service` is active exactly while the key `db` exists.
#
# A unit that needs a key has `after` and `requires` (or `bindsTo`) `db-key.service`: it
# waits for the key, stops when the key is removed, and starts again when it is back. A
# unit that needs a post-activation key should only be `wantedBy` this service. If a
# target wanted the unit, the switch would wait for a key that is uploaded after the switch.
#
# This module is part of the system, which is in the world-readable store. So it must
# never read `text`, `keyFile` or `keyCommand`.
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

  # The owner is set before the mode: otherwise the key could be readable for its
  # previous group for a moment. A link is not a key that nixbench uploaded.
  setOwner = key: ''
    key=${escapeShellArg key.path}
    if [ -f "$key" ] && [ ! -L "$key" ]; then
      if ! chown -- ${escapeShellArg "${key.user}:${key.group}"} "$key" || ! chmod -- ${escapeShellArg key.permissions} "$key"; then
        keysFailed=1
      fi
    else
      printf 'The key %s is not there; it gets its owner when it is uploaded.\n' "$key" >&2
    fi
  '';

  # Continues after an error with the other keys, and fails at the end.
  setOwners = ''
    # All of them, before we fail.
    keysFailed=
    ${lib.concatStrings (mapAttrsToList (_: setOwner) early)}
    if [ -n "$keysFailed" ]; then
      echo "Some keys did not get their owner." >&2
      false
    fi
  '';

  # With these settings, a unit creates the users after the activation.
  usersLater = config.services.userborn.enable or false || config.systemd.sysusers.enable or false;

  # -- units -----------------------------------------------------------------

  # Unit names are ASCII. Characters that they must not have are written as systemd-escape
  # writes them, except dashes: users expect `db-password-key.service`.
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

  # systemd expands specifiers in unit files.
  escapeSpecifiers = builtins.replaceStrings [ "%" ] [ "%%" ];
in
{
  # implementation
  config = lib.mkIf (keys != { }) {
    # The activation continues after a failed command, and reports it at the end.
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
      # A path unit detects that a file is created, but not that it is removed (systemd
      # issue 3642), and detects nothing while its service is starting. So the service
      # watches the file itself, with GNU tail: tail uses inotify, follows a file name
      # through renames and replacements, checks every second if the folder is missing,
      # and is on every NixOS. The contents of the file go to /dev/null.
      (mapAttrs' (
        name: key:
        nameValuePair (unitName name) {
          description = "Presence of the key ${escapeSpecifiers name}";
          # No limit: a key may be created and removed any number of times.
          startLimitIntervalSec = 0;
          # While a post-activation key is missing, a restart by switch-to-configuration
          # would never end.
          restartIfChanged = key.uploadAt == "pre-activation";
          serviceConfig = {
            TimeoutStartSec = "infinity";
            Restart = "always";
            RestartSec = "100ms";
          };

          # Units that are ordered after this service wait for this script. After every
          # line that tail prints, the script checks whether the key exists. tail uses
          # inotify only if at least one of its files exists, so it also follows this
          # script. tail prints nothing if a file is removed and created again within a
          # moment, so the script also checks every five seconds. Then it also checks
          # whether a switch has changed the unit without restarting it: the key may now
          # have another path. If tail fails, the script must not fail: the waiting units
          # would start without the key.
          preStart = ''
            key=${escapeShellArg key.path}
            unit=${escapeShellArg "${unitName name}.service"}
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

          # tail ends when the file is removed. The service then restarts instead of
          # stopping, so that units which are bound to it start again with the next key.
          script = ''
            tail -n 0 --follow=name --max-unchanged-stats=1 -- ${escapeShellArg key.path} >/dev/null 2>&1 || true
            systemctl --no-block restart -- ${escapeShellArg "${unitName name}.service"}
            exec sleep infinity
          '';
        }
      ) keysWithUnit)
    ];
  };
}
