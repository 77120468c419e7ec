# The systemd units on a node for `deployment.keys`. The activation sets the owner of pre-activation keys after it has created the
# users. For a key `db`, the systemd unit `db-key.service` is active while the key exists. It runs no process.
# `nixbench-keys.service` watches all keys, and starts and restarts these units. If a unit is started while its key is missing,
# it first waits for `nixbench-wait@db-key.service`, whose process ends when the key exists.
#
# A service that needs the key `db` should have `after` and `requires` (or `bindsTo`) `db-key.service`. The service then waits for
# the key, stops when the key is removed, and starts again when the key exists again. A service that needs a post-activation key
# should only be `wantedBy` `db-key.service`: if a target wanted the service, the switch would wait for a key that is uploaded
# after the switch.
#
# This module must not read `text`, `keyFile` or `keyCommand` of a key, because it is part of a system in the Nix store, which all
# users can read.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib)
    filterAttrs
    mapAttrs'
    mapAttrsToList
    nameValuePair
    ;
  inherit (config.deployment) keys;

  # -- owners ----------------------------------------------------------------

  early = filterAttrs (_: key: key.uploadAt == "pre-activation") keys;

  # A script that sets the owners of all keys. Keys with the same owner and mode are arguments of one chown and one chmod. After
  # an error, the script continues with the other keys, and fails at the end. The owner is set before the mode. In the other
  # order, the previous group could read the key for a moment. A symbolic link is skipped, because nixbench uploads only files. A
  # missing key is no error, because keys in /run are missing at each boot: the upload sets the owner.
  #
  # A key is also skipped if another user than root can change a folder above it: this user could replace the key by a link to a
  # file of root. In a folder that belongs to the key's user, the upload itself creates the key with the right owner.
  folders = lib.unique (lib.concatMap (key: parents key.path) (lib.attrValues early));
  parents =
    path:
    let
      folder = dirOf path;
    in
    lib.optionals (folder != "/") ([ folder ] ++ parents folder);
  setOwners = ''
    keysFailed= keyFolders=()
    for folder in ${lib.escapeShellArgs folders}; do
      if [ -e "$folder" ]; then keyFolders+=("$folder"); fi
    done
    unsafeFolders=
    if [ ''${#keyFolders[@]} != 0 ]; then
      unsafeFolders=$(find "''${keyFolders[@]}" -maxdepth 0 ! \( -type d -uid 0 \( ! -perm /022 -o -perm -1000 \) \)) ||
        unsafeFolders=$(printf '%s\n' "''${keyFolders[@]}") keysFailed=1
    fi
    isSafe() { # KEY
      local folder=''${1%/*}
      while [ -n "$folder" ]; do
        case $'\n'$unsafeFolders$'\n' in *$'\n'"$folder"$'\n'*) return 1 ;; esac
        folder=''${folder%/*}
      done
    }
    setKeyOwners() { # OWNER MODE KEYS
      local owner=$1 mode=$2 key files=()
      shift 2
      for key; do
        if [ -f "$key" ] && [ ! -L "$key" ] && isSafe "$key"; then files+=("$key"); fi
      done
      if [ ''${#files[@]} = 0 ] || { chown -h -- "$owner" "''${files[@]}" && chmod -- "$mode" "''${files[@]}"; }; then return 0; fi
      for key in "''${files[@]}"; do
        { chown -h -- "$owner" "$key" && chmod -- "$mode" "$key"; } || keysFailed=1
      done
    }
    ${lib.concatMapStrings (
      equal:
      let
        first = lib.head equal;
        arguments = [
          "${first.user}:${first.group}"
          first.permissions
        ]
        ++ map (key: key.path) equal;
      in
      "setKeyOwners ${lib.escapeShellArgs arguments}\n"
    ) (lib.attrValues (lib.groupBy (key: "${key.user}:${key.group} ${key.permissions}") (lib.attrValues early)))}
    if [ -n "$keysFailed" ]; then
      echo "Some keys did not get their owner." >&2
      false
    fi
  '';

  # -- Services that read a key only when they start ---------------------------------------------

  # For each service, the paths of the keys that it reads when it starts: the keys that name the service in `restartUnits`.
  readBy = lib.zipAttrs (mapAttrsToList (_: key: lib.genAttrs key.restartUnits (_: key.path)) keys);
  # The folder with a file for each running service of `restartUnits`. The file contains the output of `sha256sum` for the keys
  # that the service has read. upload.sh of the Go package secrets reads these files, too.
  readersFolder = "/run/nixbench-keys-read";
  recordRead = unit: paths: {
    ExecStartPre = [
      "+${pkgs.writeShellScript "nixbench-record-keys" ''
        umask 077
        ${pkgs.coreutils}/bin/mkdir -p ${readersFolder}
        ${pkgs.coreutils}/bin/sha256sum -- ${lib.escapeShellArgs paths} >${readersFolder}/${unit} || : >${readersFolder}/${unit}
      ''}"
    ];
    ExecStopPost = [ "+${pkgs.coreutils}/bin/rm -f ${readersFolder}/${unit}" ];
  };

  # Whether a systemd unit creates the users, after the activation, instead of the activation itself.
  usersLater = config.services.userborn.enable or false || config.systemd.sysusers.enable or false;

  # -- units -----------------------------------------------------------------

  # Replaces the characters that names of systemd units must not contain, as systemd-escape does. It leaves dashes, because users
  # expect the name `db-password-key.service`.
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

  # The folder with a link to each key, by the name of its unit. systemd units refer to these links, so that they do not change, and
  # no process must be restarted, when the path of a key changes. The folder `run` in it has the links to keys below /run, for the
  # condition of nixbench-wait@.service: systemd itself follows them, and would hang with any other file system that does not answer.
  linkFolder = "/etc/nixbench/keys";
  links = pkgs.linkFarm "nixbench-keys" (
    lib.concatLists (
      mapAttrsToList (
        name: key:
        map (folder: {
          name = folder + unitName name;
          inherit (key) path;
        }) ([ "" ] ++ lib.optional (lib.hasPrefix "/run/" key.path) "run/")
      ) keysWithUnit
    )
  );

  # The folder with a file for each unit NAME-key.service that is active: the path of its key. It is kept until the next boot.
  activeFolder = "/run/nixbench-keys";

  # Escapes percent signs, because systemd expands specifiers such as %n in unit files.
  escapeSpecifiers = builtins.replaceStrings [ "%" ] [ "%%" ];
in
{
  # implementation
  config = lib.mkIf (keys != { }) {
    # If this snippet of the activation fails, the activation continues with the next snippets, and reports a failure at the
    # end.
    system.activationScripts.nixbench-chown-keys = lib.mkIf (early != { } && !usersLater) (
      lib.stringAfter (
        [ "users" ] ++ lib.optional (config.system.activationScripts ? groups) "groups"
      ) setOwners
    );

    # Write the services that must be restarted into switch-to-configuration's list of units to restart.
    system.activationScripts.nixbench-restart-readers = lib.mkIf (readBy != { }) ''
      for read in ${readersFolder}/*; do
        [ ! -f "$read" ] || sha256sum --check --status -- "$read" 2>/dev/null || echo "''${read##*/}" >>/run/nixos/activation-restart-list
      done
    '';

    environment.etc."nixbench/keys" = lib.mkIf (keysWithUnit != { }) { source = links; };

    systemd.services = lib.mkMerge [
      (mapAttrs' (
        unit: paths: nameValuePair (lib.removeSuffix ".service" unit) { serviceConfig = recordRead unit paths; }
      ) readBy)
      (lib.mkIf (early != { } && usersLater) {
        nixbench-chown-keys = {
          description = "Owners of keys";
          # This is also an alias of userborn's systemd unit.
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
      # One service watches all keys. A path unit for each key would detect that a file is created, but not that it is
      # removed (systemd issue 3642). GNU tail, which every NixOS has, uses inotify, follows a file name through renames and
      # replacements, and needs no other program. It writes the contents of the files to /dev/null.
      (lib.mkIf (keysWithUnit != { }) {
        nixbench-keys = {
          description = "Arrival and removal of keys";
          # Use paths.target: a switch starts a new unit only if the target that wants the unit is active, and multi-user.target
          # may not be active for a long time.
          wantedBy = [ "paths.target" ];
          after = [ "sysinit.target" ];
          before = [ "shutdown.target" ];
          conflicts = [ "shutdown.target" ];
          unitConfig.DefaultDependencies = false;
          startLimitIntervalSec = 0;
          restartTriggers = mapAttrsToList (name: key: "${name} ${key.path}") keysWithUnit;
          serviceConfig = {
            # With this type, a switch waits until the services NAME-key.service of present keys are being started. So the switch
            # notices when services that need these keys fail.
            Type = "notify";
            NotifyAccess = "all";
            Restart = "always";
            RestartSec = "1s";
            RuntimeDirectory = baseNameOf activeFolder;
            RuntimeDirectoryMode = "0700";
            RuntimeDirectoryPreserve = true;
          };
          stopIfChanged = false;

          # The script checks which keys exist after every line that tail prints, and every five seconds, because tail prints
          # nothing if a file is created before tail has opened it, or removed and created again within a moment. tail uses
          # inotify only if at least one of its files exists, so the file of this script is one of them. If a folder is missing,
          # or on an overlay or a network file system, tail checks all files every second. A file system that does not answer
          # delays the units of all keys.
          #
          # A unit is restarted when its key is removed, so that units which are bound to it stop, and start again when the key
          # exists again. The file of a unit in the folder exists from its start on, also if nixbench-wait@.service has let it
          # start before this script has seen the key. If the file has another path than the missing key, the unit is left alone for
          # a minute: the switch has changed the path of a post-activation key, which is uploaded after the switch, and the switch
          # would wait for units that are restarted. If a program fails, the next pass of the loop tries again.
          script = ''
            cd ${activeFolder}
            shopt -s nullglob
            files=(*)
            if [ ''${#files[@]} != 0 ]; then # this service was restarted: keep the files of units that are still active
              units=$'\n'$(systemctl --plain --no-legend --full --state=active list-units '*-key.service')
              stale=()
              for unit in "''${files[@]}"; do
                case $units in *$'\n'"$unit "*) ;; *) stale+=("$unit") ;; esac
              done
              rm -f -- "''${stale[@]}"
            fi

            links=(${linkFolder}/*-key)
            mapfile -d "" -t keys < <(readlink -mz -- "''${links[@]}")
            [ ''${#keys[@]} = ''${#links[@]} ]
            # queue calls systemctl for all UNITs, and if this fails for each alone. It sets queued to those for which it succeeded.
            queue() { # VERB UNIT...
              local verb=$1 unit
              shift
              queued=("$@")
              if [ $# = 0 ] || systemctl --no-block "$verb" -- "$@"; then return; fi
              queued=()
              for unit; do
                if systemctl --no-block "$verb" -- "$unit"; then queued+=("$unit"); fi
              done
            }
            exec 3< <(exec tail -n 0 -F --max-unchanged-stats=1 -- "''${keys[@]}" "$0" 2>&1 >/dev/null)
            declare -A key=()
            ready=
            while kill -0 "$!"; do
              start=() restart=()
              for i in "''${!links[@]}"; do
                unit=''${links[i]##*/}.service active=
                key[$unit]=''${keys[i]}
                [ ! -e "$unit" ] || IFS= read -r active <"$unit" || active=
                if [ -e "''${keys[i]}" ] || [ -e "''${links[i]}" ]; then
                  [ "$active" = "''${keys[i]}" ] || start+=("$unit")
                elif [ "$active" = "''${keys[i]}" ] || { [ -n "$active" ] && [ "$SECONDS" -ge 60 ]; }; then
                  restart+=("$unit")
                fi
              done
              queue try-restart "''${restart[@]}"
              rm -f -- "''${queued[@]}"
              queue start "''${start[@]}"
              for unit in "''${queued[@]}"; do printf '%s\n' "''${key[$unit]}" >"$unit"; done
              if [ -z "$ready" ] && systemd-notify --ready; then ready=yes; fi
              read -r -t 5 _ <&3 || true
            done
          '';
        };

        "nixbench-wait@" = {
          description = "Wait for the key of %i";
          unitConfig.ConditionPathExists = "!${linkFolder}/run/%i";
          startLimitIntervalSec = 0;
          restartIfChanged = false; # a switch would wait for a post-activation key, which is uploaded after the switch
          serviceConfig.Type = "oneshot";
          # The script checks whether the key exists after every line that tail prints, and every five seconds, because a switch may
          # change the path of the key. It ends when a switch removes the key. If tail fails, the script must not fail, because the
          # waiting units would then start without the key.
          scriptArgs = "%i";
          script = ''
            link=${linkFolder}/$1
            [ -e "$link" ] || exec 3< <(exec tail -n 0 -F -- "$(readlink -m -- "$link")" "$0" 2>&1 >/dev/null)
            while [ -L "$link" ] && [ ! -e "$link" ]; do
              read -r -t 5 _ <&3 || [ $? -gt 128 ] || sleep 5
            done
            { readlink -m -- "$link" >"${activeFolder}/$1.service"; } 2>/dev/null || true # the folder is missing before nixbench-keys.service starts
          '';
        };
      })
      (mapAttrs' (
        name: key:
        nameValuePair (unitName name) {
          description = "Presence of the key ${escapeSpecifiers name}";
          requires = [ "nixbench-wait@${unitName name}.service" ];
          after = [ "nixbench-wait@${unitName name}.service" ];
          # systemd must not limit how often this service starts, because a key may be created and removed any number of times.
          startLimitIntervalSec = 0;
          # A restart of NAME-key.service waits for the key. If the key is uploaded after the activation, switch-to-configuration
          # would wait for that restart forever.
          restartIfChanged = key.uploadAt == "pre-activation";
          unitConfig.X-KeyPath = key.path; # a change of the path is a change of the unit
          serviceConfig = {
            Type = "oneshot";
            RemainAfterExit = true;
            ExecStop = "${pkgs.coreutils}/bin/true"; # systemd refuses a service without a command
          };
        }
      ) keysWithUnit)
    ];
  };
}
