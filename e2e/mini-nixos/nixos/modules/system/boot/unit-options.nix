# The options of systemd units, as NixOS has them.
{ lib, utils }:
let
  inherit (lib) mkOption types;
  inherit (import ../../../lib/option.nix { inherit lib; }) option required;
  inherit (utils) unitOption;

  unitName = types.strMatching "[a-zA-Z0-9@%:_.\\-]+[.](service|socket|device|mount|automount|swap|target|path|timer|scope|slice)";

  unitNames =
    description:
    option (types.listOf unitName) [ ] description;
  settings =
    description:
    option (types.attrsOf unitOption) { } description;
  flag =
    default: description:
    option types.bool default description;
  lines =
    description:
    option types.lines "" description;
  triggers =
    description:
    option (types.listOf types.unspecified) [ ] description;
in
rec {
  shared = {
    enable = flag true "Whether the unit exists; false masks it.";
    overrideStrategy =
      option (types.enum [ "asDropinIfExists" "asDropin" ]) "asDropinIfExists"
        "Whether this is a unit of its own or adds to one that exists.";
    requiredBy = unitNames "Units that require this one.";
    wantedBy = unitNames "Units that want this one.";
    upheldBy = unitNames "Units that keep this one running.";
    aliases = unitNames "Other names of the unit.";
  };

  common = shared // {
    description = option types.singleLineStr "" "What the unit is.";
    documentation = option (types.listOf types.str) [ ] "Where to read about it.";
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
    startLimitBurst = required types.int "How often it may start in the interval.";
    startLimitIntervalSec = required types.int "Seconds in which starts are counted.";
    restartTriggers = triggers "Values whose change restarts the unit.";
    reloadTriggers = triggers "Values whose change reloads the unit.";
  };

  service = common // {
    environment =
      option (types.attrsOf ( types.nullOr ( types.oneOf [ types.str types.path types.package ] ) )) { }
        "Environment variables.";
    path = option (types.listOf ( types.oneOf [ types.package types.str ] )) [ ] "Packages on PATH.";
    enableDefaultPath = flag true "Whether a few standard packages are on PATH.";
    serviceConfig = settings "The [Service] section.";
    script = lines "Shell commands that are the service.";
    scriptArgs = option types.str "" "Arguments of the script.";
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
      description = "When a timer starts it.";
    };
  };

  socket = common // {
    listenStreams = option (types.listOf types.str) [ ] "ListenStream= of the socket.";
    listenDatagrams = option (types.listOf types.str) [ ] "ListenDatagram= of the socket.";
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
    what = required types.str "What to mount.";
    where = required types.str "Where to mount it.";
    type = option types.str "" "Type of the file system.";
    options = option types.commas "" "Mount options.";
    mountConfig = settings "The [Mount] section.";
  };
}
