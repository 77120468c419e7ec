# What a node does with `deployment.keys`: a pre-activation key gets its owner when
# users exist, and `db-key.service` is active exactly while the key `db` is there.
#
# Units that need a key say `after` and `requires` (or `bindsTo`) `db-key.service`:
# they wait for the key, stop when it goes, and start again when it is back. A unit
# that needs a post-activation key should be `wantedBy` its service alone: were it
# wanted by a target, the switch would wait for a key that comes after the switch.
#
# This is part of the system, so it must never read `text`, `keyFile` or
# `keyCommand`: the store is world-readable.
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

  # The mode comes second: a key must not be readable for the group that it has
  # before it gets its own. A link is not a key that nixbench uploaded.
  own = key: ''
    key=${escapeShellArg key.path}
    if [ -f "$key" ] && [ ! -L "$key" ]; then
      if ! chown -- ${escapeShellArg "${key.user}:${key.group}"} "$key" || ! chmod -- ${escapeShellArg key.permissions} "$key"; then
        keysFailed=1
      fi
    else
      printf 'The key %s is not there; it gets its owner when it is uploaded.\n' "$key" >&2
    fi
  '';

  ownEarly = ''
    # All of them, before we fail.
    keysFailed=
    ${lib.concatStrings (mapAttrsToList (_: own) early)}
    if [ -n "$keysFailed" ]; then
      echo "Some keys did not get their owner." >&2
      false
    fi
  '';

  # These make users by a unit, after the activation.
  usersLater = config.services.userborn.enable or false || config.systemd.sysusers.enable or false;

  # -- units -----------------------------------------------------------------

  # Unit names are ASCII. What they may not have is written as systemd-escape
  # does, except that dashes stay: `db-password-key.service` is what people write.
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
  followed = filterAttrs (name: _: builtins.match "[]a-zA-Z0-9:_.@\\-]+" (unitName name) != null) keys;

  # A unit's file is read by systemd, which expands specifiers.
  escapeSpecifiers = builtins.replaceStrings [ "%" ] [ "%%" ];
in
{
  # implementation
  config = lib.mkIf (keys != { }) {
    # Activation goes on after a failed command, and reports it.
    system.activationScripts.nixbench-chown-keys = lib.mkIf (early != { } && !usersLater) (
      lib.stringAfter (
        [ "users" ] ++ lib.optional (config.system.activationScripts ? groups) "groups"
      ) ownEarly
    );

    systemd.paths = mapAttrs' (
      name: key:
      nameValuePair (unitName name) {
        description = "Arrival of the key ${escapeSpecifiers name}";
        wantedBy = [ "paths.target" ];
        pathConfig.PathExists = escapeSpecifiers key.path;
      }
    ) followed;

    systemd.services = lib.mkMerge [
      (lib.mkIf (early != { } && usersLater) {
        nixbench-chown-keys = {
          description = "Owners of keys";
          # userborn goes by that name, too.
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
            ExecStart = pkgs.writeShellScript "nixbench-chown-keys" ownEarly;
          };
        };
      })
      # Path units see a file come, but not go (systemd issue 3642), and while their
      # service waits they see nothing. So the service watches by itself. GNU tail
      # does that with inotify, follows a name through renames and replacements,
      # falls back to a look each second where a folder is missing, and needs no
      # package that NixOS does not have anyway. What it reads goes to /dev/null.
      (mapAttrs' (
        name: key:
        nameValuePair (unitName name) {
          description = "Presence of the key ${escapeSpecifiers name}";
          # However often a key comes and goes.
          startLimitIntervalSec = 0;
          # With a post-activation key that is still to come, a restart by
          # switch-to-configuration would never end.
          restartIfChanged = key.uploadAt == "pre-activation";
          serviceConfig = {
            TimeoutStartSec = "infinity";
            Restart = "always";
            RestartSec = "100ms";
          };

          # Whoever is ordered after this service waits here. Every line that tail
          # says is a reason to look. It uses inotify only if some file is there, so
          # it follows this script, too; and it says nothing of a file that is gone
          # for a moment, so a look every five seconds is the last resort. Then it
          # also finds out that a switch has changed the unit, which did not restart
          # it: the key may be expected elsewhere now.
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

          # tail ends when the file is gone. A restart, rather than an end, lets units
          # that are bound to this one come back together with the key.
          script = ''
            tail -n 0 --follow=name --max-unchanged-stats=1 -- ${escapeShellArg key.path} >/dev/null 2>&1 || true
            systemctl --no-block restart -- ${escapeShellArg "${unitName name}.service"}
            exec sleep infinity
          '';
        }
      ) followed)
    ];
  };
}
