# The options of systemd units, as NixOS has them.
{ lib, utils }:
let
  inherit (lib) mkOption types;
  inherit (utils) unitOption;

  unitName = types.strMatching "[a-zA-Z0-9@%:_.\\-]+[.](service|socket|device|mount|automount|swap|target|path|timer|scope|slice)";

  unitNames =
    description:
    mkOption {
      type = types.listOf unitName;
      default = [ ];
      inherit description;
    };
  settings =
    description:
    mkOption {
      type = types.attrsOf unitOption;
      default = { };
      inherit description;
    };
  flag =
    default: description:
    mkOption {
      type = types.bool;
      inherit default description;
    };
  lines =
    description:
    mkOption {
      type = types.lines;
      default = "";
      inherit description;
    };
  triggers =
    description:
    mkOption {
      type = types.listOf types.unspecified;
      default = [ ];
      inherit description;
    };
in
rec {
  shared = {
    enable = flag true "Whether the unit exists; false masks it.";
    overrideStrategy = mkOption {
      type = types.enum [
        "asDropinIfExists"
        "asDropin"
      ];
      default = "asDropinIfExists";
      description = "Whether this is a unit of its own or adds to one that exists.";
    };
    requiredBy = unitNames "Units that require this one.";
    wantedBy = unitNames "Units that want this one.";
    upheldBy = unitNames "Units that keep this one running.";
    aliases = unitNames "Other names of the unit.";
  };

  common = shared // {
    description = mkOption {
      type = types.singleLineStr;
      default = "";
      description = "What the unit is.";
    };
    documentation = mkOption {
      type = types.listOf types.str;
      default = [ ];
      description = "Where to read about it.";
    };
    requires = unitNames "Units started with it, without which it fails.";
    wants = unitNames "Units started with it.";
    upholds = unitNames "Units it keeps running.";
    after = unitNames "Units that start before it.";
    before = unitNames "Units that start after it.";
    bindsTo = unitNames "Units whose end is its own.";
    partOf = unitNames "Units with which it stops and restarts.";
    conflicts = unitNames "Units that cannot run beside it.";
    requisite = unitNames "Units that must already run.";
    onFailure = unitNames "Units started when it fails.";
    onSuccess = unitNames "Units started when it succeeds.";
    unitConfig = settings "The [Unit] section.";
    startLimitBurst = mkOption {
      type = types.int;
      description = "How often it may start in the interval.";
    };
    startLimitIntervalSec = mkOption {
      type = types.int;
      description = "Seconds in which starts are counted.";
    };
    restartTriggers = triggers "Values whose change restarts the unit.";
    reloadTriggers = triggers "Values whose change reloads the unit.";
  };

  service = common // {
    environment = mkOption {
      type = types.attrsOf (
        types.nullOr (
          types.oneOf [
            types.str
            types.path
            types.package
          ]
        )
      );
      default = { };
      description = "Environment variables.";
    };
    path = mkOption {
      type = types.listOf (
        types.oneOf [
          types.package
          types.str
        ]
      );
      default = [ ];
      description = "Packages on PATH.";
    };
    enableDefaultPath = flag true "Whether a few standard packages are on PATH.";
    serviceConfig = settings "The [Service] section.";
    script = lines "Shell commands that are the service.";
    scriptArgs = mkOption {
      type = types.str;
      default = "";
      description = "Arguments of the script.";
    };
    preStart = lines "Shell commands before the start.";
    postStart = lines "Shell commands after the start.";
    preStop = lines "Shell commands that stop the service.";
    postStop = lines "Shell commands after it stopped.";
    reload = lines "Shell commands that reload the service.";
    restartIfChanged = flag true "Whether a changed unit is restarted.";
    reloadIfChanged = flag false "Whether a changed unit is reloaded instead of restarted.";
    stopIfChanged = flag true "Whether a restart stops with the old unit and starts with the new.";
    notSocketActivated = flag false "Whether a changed unit is started although it has a socket.";
    startAt = mkOption {
      type = types.either types.str (types.listOf types.str);
      default = [ ];
      apply = lib.toList;
      example = "Sun 14:00:00";
      description = "When a timer starts it.";
    };
  };

  socket = common // {
    listenStreams = mkOption {
      type = types.listOf types.str;
      default = [ ];
      description = "ListenStream= of the socket.";
    };
    listenDatagrams = mkOption {
      type = types.listOf types.str;
      default = [ ];
      description = "ListenDatagram= of the socket.";
    };
    socketConfig = settings "The [Socket] section.";
  };
  timer = common // {
    timerConfig = settings "The [Timer] section.";
  };
  path = common // {
    pathConfig = settings "The [Path] section.";
  };
  slice = common // {
    sliceConfig = settings "The [Slice] section.";
  };
  target = common;
  mount = common // {
    what = mkOption {
      type = types.str;
      example = "/dev/sda1";
      description = "What to mount.";
    };
    where = mkOption {
      type = types.str;
      example = "/mnt";
      description = "Where to mount it.";
    };
    type = mkOption {
      type = types.str;
      default = "";
      description = "Type of the file system.";
    };
    options = mkOption {
      type = types.commas;
      default = "";
      description = "Mount options.";
    };
    mountConfig = settings "The [Mount] section.";
  };
}
