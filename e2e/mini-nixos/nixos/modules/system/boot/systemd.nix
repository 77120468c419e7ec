# systemd units.
{ config, lib, pkgs, utils, ... }:
let
  inherit (lib) mkIf types;
  inherit (import ../../../lib/option.nix { inherit lib; }) option required;
  inherit (utils) section settingLines;
  cfg = config.systemd;
  unitOptions = import ./unit-options.nix { inherit lib utils; };

  # --- from options to settings ---

  # Triggers may be whole texts: the unit carries their hash.
  hashOf =
    values:
    builtins.hashString "sha256" (
      lib.concatMapStringsSep " " (v: if builtins.isPath v then "${v}" else toString v) (
        lib.flatten values
      )
    );

  unitSettings =
    { config, options, ... }:
    {
      config.unitConfig =
        lib.filterAttrs (_: v: v != [ ]) {
          Requires = config.requires;
          Wants = config.wants;
          Upholds = config.upholds;
          After = config.after;
          Before = config.before;
          BindsTo = config.bindsTo;
          PartOf = config.partOf;
          Conflicts = config.conflicts;
          Requisite = config.requisite;
          OnFailure = config.onFailure;
          OnSuccess = config.onSuccess;
        }
        // lib.optionalAttrs (config.restartTriggers != [ ]) {
          X-Restart-Triggers = hashOf config.restartTriggers;
        }
        // lib.optionalAttrs (config.reloadTriggers != [ ]) {
          X-Reload-Triggers = hashOf config.reloadTriggers;
        }
        // lib.optionalAttrs (config.documentation != [ ]) {
          Documentation = toString config.documentation;
        }
        // lib.optionalAttrs (config.description != "") { Description = config.description; }
        // lib.optionalAttrs options.startLimitIntervalSec.isDefined {
          StartLimitIntervalSec = toString config.startLimitIntervalSec;
        }
        // lib.optionalAttrs options.startLimitBurst.isDefined {
          StartLimitBurst = toString config.startLimitBurst;
        };
    };

  # Its name is what `ps` shows.
  jobScript =
    name: text:
    let
      file = lib.strings.sanitizeDerivationName (
        builtins.replaceStrings
          [ "\\" "@" ]
          [ "-" "_" ]
          name
      );
      script = pkgs.writeTextFile {
        name = "unit-script-${file}";
        executable = true;
        destination = "/bin/${file}";
        text = ''
          #!${pkgs.runtimeShell}
          set -e

          ${text}
        '';
      };
    in
    "${script}/bin/${file}";

  serviceSettings =
    { name, config, ... }:
    let
      job = option: jobScript "${name}-${option}" config.${option};
    in
    {
      config = lib.mkMerge [
        # The guest's own services keep the PATH they have.
        (mkIf (addsTo "${name}.service" config) { enableDefaultPath = lib.mkDefault false; })
        (mkIf config.enableDefaultPath {
          path = lib.mkAfter [
            pkgs.coreutils
            pkgs.findutils
            pkgs.gnugrep
            pkgs.gnused
            pkgs.systemd
          ];
        })
        {
          environment.PATH = mkIf (config.path != [ ]) (
            "${lib.makeBinPath config.path}:${lib.makeSearchPathOutput "bin" "sbin" config.path}"
          );
        }
        (mkIf (config.preStart != "") { serviceConfig.ExecStartPre = [ (job "preStart") ]; })
        (mkIf (config.script != "") {
          serviceConfig.ExecStart =
            jobScript "${name}-start" config.script
            + lib.optionalString (config.scriptArgs != "") " ${config.scriptArgs}";
        })
        (mkIf (config.postStart != "") { serviceConfig.ExecStartPost = [ (job "postStart") ]; })
        (mkIf (config.preStop != "") { serviceConfig.ExecStop = [ (job "preStop") ]; })
        (mkIf (config.postStop != "") { serviceConfig.ExecStopPost = [ (job "postStop") ]; })
        (mkIf (config.reload != "") { serviceConfig.ExecReload = [ (job "reload") ]; })
      ];
    };

  mountSettings =
    { config, ... }:
    {
      config.mountConfig = { What = config.what; Where = config.where; }
      // lib.optionalAttrs (config.type != "") { Type = config.type; }
      // lib.optionalAttrs (config.options != "") { Options = config.options; };
    };

  # --- from settings to text ---

  environmentLines =
    env:
    lib.concatStrings (
      lib.mapAttrsToList (
        n: v:
        # systemd would expand a %.
        lib.optionalString (v != null) (
          "Environment="
          + builtins.replaceStrings [ "%" ] [ "%%" ] (builtins.toJSON "${n}=${v}")
          + "\n"
        )
      ) env
    );

  serviceText =
    name: s:
    section "Unit" s.unitConfig
    + "\n[Service]\n"
    + environmentLines (
      lib.optionalAttrs (!addsTo name s) cfg.globalEnvironment // s.environment
    )
    + (
      if s.reloadIfChanged then
        "X-ReloadIfChanged=true\n"
      else
        lib.optionalString (!s.restartIfChanged) "X-RestartIfChanged=false\n"
    )
    + lib.optionalString (!s.stopIfChanged) "X-StopIfChanged=false\n"
    + lib.optionalString s.notSocketActivated "X-NotSocketActivated=true\n"
    + settingLines s.serviceConfig;

  twoSections =
    title: of: _name: u:
    section "Unit" u.unitConfig + "\n" + section title (of u);

  asUnit = text: name: u: {
    inherit (u) aliases enable overrideStrategy requiredBy upheldBy wantedBy;
    text = text name u;
  };
  unitsOf =
    suffix: text: set:
    lib.mapAttrs' (
      n: u:
      let
        name = "${n}.${suffix}";
      in
      lib.nameValuePair name (asUnit text name u)
    ) set;

  # --- units in one tree ---

  # Units that the guest has already: what a hive says about them adds to them.
  guestHas =
    name:
    lib.hasPrefix "systemd-" name && name != "systemd-tmpfiles-resetup.service"
    || lib.elem name [
      "dbus.service"
      "nix-daemon.service"
      "nix-daemon.socket"
      "ssh.service"
      "basic.target"
      "multi-user.target"
      "network-online.target"
      "network.target"
      "sysinit.target"
      "timers.target"
    ];

  addsTo = name: u: guestHas name || u.overrideStrategy == "asDropin";

  treeOf =
    title: packages: set:
    let
      units = lib.attrValues (lib.mapAttrs (name: u: u // { inherit name; }) set);
      # Attribute names of a derivation are variables of its builder.
      texts = lib.listToAttrs (lib.imap0 (i: u: lib.nameValuePair "unit${toString i}" u.text) units);
    in
    pkgs.runCommand title (texts // { passAsFile = lib.attrNames texts; })
      ''
        mkdir -p "$out"
        cd "$out"

        ${lib.concatMapStrings (p: ''
          for dir in ${p}/etc/systemd/system ${p}/lib/systemd/system; do
            [ -d "$dir" ] || continue
            for unit in "$dir"/*; do
              [ -e "$unit" ] && ln -sfn "$unit" "''${unit##*/}"
            done
          done
        '') packages}

        unit() { # NAME TEXT-FILE DROPIN
          if [ "$3" = yes ] || [ -e "$1" ]; then
            mkdir -p "$1.d"
            cp "$2" "$1.d/overrides.conf"
          else
            cp "$2" "$1"
          fi
        }
        link() { # TARGET NAME
          mkdir -p "$(dirname "$2")"
          ln -sfn "$1" "$2"
        }
        ${lib.concatStrings (lib.imap0 (i: u: unitCommands "unit${toString i}Path" u) units)}
      '';

  unitCommands =
    variable: u:
    let
      name = lib.escapeShellArg u.name;
      dropin = lib.boolToYesNo (addsTo u.name u);
      # The guest's own units lie where Debian has them.
      target = if guestHas u.name then "/usr/lib/systemd/system/${name}" else "../${name}";
      into = kind: by: "link ${target} ${lib.escapeShellArg "${by}.${kind}"}/${name}\n";
    in
    if !u.enable then
      "ln -sfn /dev/null ${name}\n"
    else
      "unit ${name} \"\$${variable}\" ${dropin}\n"
      + lib.concatMapStrings (into "wants") u.wantedBy
      + lib.concatMapStrings (into "requires") u.requiredBy
      + lib.concatMapStrings (into "upholds") u.upheldBy
      + lib.concatMapStrings (a: "link ${name} ${lib.escapeShellArg a}\n") u.aliases;

  unitTable =
    modules: description:
    option (types.attrsOf (types.submodule modules)) { } description;
  withOptions = options: [
    { inherit options; }
    unitSettings
  ];
in
{
  options.systemd = {
    units = unitTable [
      {
        options = unitOptions.shared // {
          text = option (types.nullOr types.str) null "Text of the unit.";
        };
      }
    ] "Units as text.";
    services = unitTable (withOptions unitOptions.service ++ [ serviceSettings ]) "Services.";
    sockets = unitTable (withOptions unitOptions.socket) "Sockets.";
    timers = unitTable (withOptions unitOptions.timer) "Timers.";
    targets = unitTable (withOptions unitOptions.target) "Targets.";
    paths = unitTable (withOptions unitOptions.path) "Paths.";
    slices = unitTable (withOptions unitOptions.slice) "Slices.";
    user.services = unitTable (
      withOptions unitOptions.service ++ [ serviceSettings ]
    ) "Services of each user.";
    mounts =
      option (types.listOf (types.submodule (withOptions unitOptions.mount ++ [ mountSettings ]))) [ ]
        "Mounts.";

    packages =
      option (types.listOf types.package) [ ]
        "Packages with units in etc/systemd/system or lib/systemd/system.";
    package = option types.package pkgs.systemd "The systemd package.";
    globalEnvironment =
      option (types.attrsOf ( types.nullOr ( types.oneOf [ types.str types.path types.package ] ) )) { }
        "Environment variables of all services.";
    extraConfig = option types.lines "" "Lines at the end of the manager's configuration.";
    settings.Manager =
      option (types.submodule { freeformType = types.attrsOf utils.unitOption; }) { }
        "Settings of the manager.";
    defaultUnit =
      option types.str "multi-user.target"
        "What the machine boots into; the guest's image decides.";
    coredump.enable = option types.bool true "Whether systemd keeps core dumps; the guest decides.";
    enableEmergencyMode =
      option types.bool true
        "Whether a failed boot ends in a rescue shell; the guest decides.";
  };

  options.system.build = {
    units = required types.package "The units in one tree.";
    userUnits = required (types.nullOr types.package) "The units of users in one tree, if there are any.";
  };

  config = {
    system.build.units = treeOf "system-units" cfg.packages cfg.units;
    system.build.userUnits =
      if cfg.user.services == { } then
        null
      else
        treeOf "user-units" [ ] (unitsOf "service" serviceText cfg.user.services);

    # A switch restarts it, and so what must be done before the other units.
    systemd.targets.sysinit-reactivation.description = "Reactivate sysinit units";

    systemd.units =
      unitsOf "service" serviceText cfg.services
      // unitsOf "socket" (twoSections "Socket" (
        s:
        lib.optionalAttrs (s.listenStreams != [ ]) { ListenStream = s.listenStreams; }
        // lib.optionalAttrs (s.listenDatagrams != [ ]) { ListenDatagram = s.listenDatagrams; }
        // s.socketConfig
      )) cfg.sockets
      // unitsOf "timer" (twoSections "Timer" (t: t.timerConfig)) cfg.timers
      // unitsOf "path" (twoSections "Path" (p: p.pathConfig)) cfg.paths
      // unitsOf "slice" (twoSections "Slice" (s: s.sliceConfig)) cfg.slices
      // unitsOf "target" (_name: t: section "Unit" t.unitConfig) cfg.targets
      // lib.listToAttrs (
        map (
          m:
          let
            name = "${utils.escapeSystemdPath m.where}.mount";
          in
          lib.nameValuePair name (asUnit (twoSections "Mount" (m: m.mountConfig)) name m)
        ) cfg.mounts
      );

    systemd.timers = lib.mapAttrs (_: s: {
      wantedBy = [ "timers.target" ];
      timerConfig.OnCalendar = s.startAt;
    }) (lib.filterAttrs (_: s: s.enable && s.startAt != [ ]) cfg.services);

    environment.etc."systemd/system.conf.d/50-nixos.conf".text =
      section "Manager" cfg.settings.Manager + cfg.extraConfig;
  };
}
