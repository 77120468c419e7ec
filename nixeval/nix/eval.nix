# Evaluates a hive, or the outputs of a flake that contain one. The Go code passes the text of this file, with its arguments, to
# Nix as one expression, so that nothing is written into the user's folder. The file must work with Nix 2.8 and later, with `lib`
# of nixpkgs 25.05 and later, and in pure mode. For an older nixpkgs it throws an error.
{
  # Modules of nixbench, as values: the options of the hive (meta, cluster and roles), the modules of
  # every node, and the module of every role whose nodes share one closure.
  hiveOptions,
  deploymentModules,
  sharedRoleModule,
  # Where the hive comes from, for messages: a file or a flake output. If `hiveOutputs` is set, it is the flake.
  source,
  # Null if the last argument of this function is a hive. Otherwise the last argument is the set of a flake's outputs, and
  # hiveOutputs are the names of the outputs that can contain a hive, in the order in which they are tried.
  hiveOutputs,
  # The error message for a flake without a hive and without nixosConfigurations.
  noHive,
  # True for a flake in pure mode: the hive must then set meta.nixpkgs to a package set. If false, the default of meta.nixpkgs is
  # <nixpkgs>.
  hermetic,
  # The facts about the cluster's machines, or null before machines exist.
  runtime,
  # The name of the specialisation whose deployment options are used, or null. A unit that does not have this specialisation uses
  # the deployment options of its system.
  specialisation,
  # The arguments of --set, in order: [ { path; raw; isJSON; } ].
  sets,
  # Functions `parts: role: [ modules ]`. Each returns modules that a node gets in addition. The role is null for a named node.
  extraModules,
}:
raw:
let
  inherit (builtins)
    attrNames
    attrValues
    concatLists
    concatStringsSep
    elem
    filter
    foldl'
    genList
    head
    isAttrs
    isBool
    isFunction
    isInt
    isList
    isPath
    isString
    length
    listToAttrs
    map
    mapAttrs
    removeAttrs
    tail
    typeOf
    ;

  # -- the hive and nixosConfigurations of a flake --------------------------------

  presentOutputs = filter (name: raw ? ${name}) hiveOutputs;
  rawHive =
    if hiveOutputs == null then
      raw
    else if presentOutputs != [ ] then
      raw.${head presentOutputs}
    else if raw ? nixosConfigurations then
      { }
    else
      throwError noHive;
  location =
    if hiveOutputs == null then
      source
    else
      "${source}#${head (presentOutputs ++ [ "nixosConfigurations" ])}";

  # The systems in nixosConfigurations, by the names of their nodes.
  configurations =
    let
      all = raw.nixosConfigurations or { };
      inHive = evaluatedHive.nodes;
      twice = filter (name: inHive ? ${name}) (attrNames all);
    in
    if hiveOutputs == null || all == { } then
      { }
    else if !isAttrs all then
      throwError "${source}#nixosConfigurations must be an attribute set, but it is ${typeWithArticle all}"
    else if presentOutputs == [ ] || twice == [ ] then
      all
    # Flakes for Colmena often have the nodes of their hive as nixosConfigurations too, so that nixos-rebuild can build them. So,
    # with Colmena's hive, a node of the hive replaces the system with the same name.
    else if head presentOutputs != "nixbenchHive" then
      removeAttrs all twice
    else
      throwError "node ${head twice} is in both ${location} and ${source}#nixosConfigurations; rename or remove one of them, or use only the hive: --flake ${location}";

  # The system in nixosConfigurations whose lib is used if the hive has no package set: the first whose evaluation is no error.
  firstConfiguration =
    let
      find =
        all: if tail all == [ ] || (builtins.tryEval (head all ? lib)).value then head all else find (tail all);
    in
    find (attrValues raw.nixosConfigurations);
  useConfigurationsLib =
    hiveOutputs != null && raw.nixosConfigurations or { } != { } && !(isAttrs rawMeta && rawMeta.nixpkgs or null != null);

  # The options of a system that does not declare deployment.*. They are the defaults of a node in a hive, except that the SSH
  # configuration determines the user.
  defaultDeployment =
    name:
    (lib.evalModules {
      modules = deploymentModules ++ [
        {
          _module.check = false;
          deployment.targetUser = null;
        }
      ];
      specialArgs = { inherit name; };
    }).config.deployment;

  deploymentOfConfiguration =
    name:
    let
      inherit (configurations.${name}) config options;
      deployment = deploymentOf (selectDeployment config);
    in
    if !(options ? deployment.targetHost) then
      deploymentOf (defaultDeployment name) // { sshConfig = true; }
    # targetHost is not set. Its default is the node's name, which the module of the system does not know.
    else if options.deployment.targetHost.highestPrio or 0 >= 1500 then
      deployment // { targetHost = name; }
    else
      deployment;

  # Throw an error whose text begins with "nixbench: ". The Go code shows such errors without a trace.
  throwError = message: throw "nixbench: ${message}";

  reservedNames = [
    "meta"
    "network"
    "defaults"
    "roles"
    "cluster"
    "benchmarks"
  ];

  hive =
    let
      hiveValue =
        if isFunction rawHive || (isAttrs rawHive && rawHive ? __functor) then rawHive { } else rawHive;
    in
    if !isAttrs hiveValue then
      throwError "${location} must give an attribute set (or a function that returns one), but it gives ${typeWithArticle hiveValue}"
    else if hiveValue ? type && hiveValue.type == "derivation" then
      throwError "${location} must give an attribute set of nodes, but it gives a derivation"
    else if hiveValue ? meta && hiveValue ? network then
      throwError "${location} has both `meta` and `network`; keep `meta` (`network` is its old name)"
    else
      hiveValue;

  rawMeta = hive.meta or hive.network or { };

  # -- nixpkgs ---------------------------------------------------------------

  # The oldest release of NixOS that the modules support.
  oldestRelease = "25.05";

  # Return the package set if it belongs to a supported release, and otherwise throw an error. Without this check, an older lib or
  # older modules would lack something that nixbench's modules use, and the error would not name the cause.
  checkRelease =
    option: pkgs:
    let
      release = pkgs.lib.trivial.release or "an unknown release";
    in
    if builtins.compareVersions release oldestRelease >= 0 then
      pkgs
    else
      throwError "nixbench needs nixpkgs ${oldestRelease} or later; ${option} in ${location} is ${release}";

  importNixpkgs =
    option: value:
    let
      throwImpure = what: throwError ''
        ${option} in ${location} is ${what}, and a flake stays pure only with a package set. Write

          ${option} = import nixpkgs { system = "x86_64-linux"; };'';
    in
    if isPath value || isString value then
      if hermetic then throwImpure "a path" else importNixpkgs option (import value)
    else if isAttrs value && !(value ? lib && value ? path && value ? config) && value ? outPath then
      if hermetic then throwImpure "a flake input or a path" else importNixpkgs option (import value)
    else if isFunction value then
      if hermetic then throwImpure "a function" else value { overlays = [ ]; }
    else if isAttrs value && value ? lib && value ? path && value ? config then
      checkRelease option value
    else
      throwError "${option} in ${location} must be a path to nixpkgs, a function such as `import <nixpkgs>`, or a package set, but it is ${typeWithArticle value}";

  nixpkgs =
    # Take nixpkgs from rawMeta and not from the evaluated meta, because the evaluation of meta needs the lib of nixpkgs. If
    # rawMeta is a function, use <nixpkgs>, as Colmena does.
    if isAttrs rawMeta && rawMeta.nixpkgs or null != null then
      importNixpkgs "meta.nixpkgs" rawMeta.nixpkgs
    else if hermetic then
      throwError ''
        ${location} does not set meta.nixpkgs. Write

          meta.nixpkgs = import nixpkgs { system = "x86_64-linux"; };''
    else
      importNixpkgs "<nixpkgs>" <nixpkgs>;

  lib = if useConfigurationsLib then firstConfiguration.lib else nixpkgs.lib;
  pkgs = if useConfigurationsLib then firstConfiguration.pkgs else nixpkgs;

  # -- meta, cluster and roles: the module system checks types --------------------

  # Return the module with its place in the hive, which the module system shows in error messages.

  withLocation =
    where: module:
    if isPath module || isString module then
      module
    else if isAttrs module || isFunction module then
      {
        _file = where;
        imports = [ module ];
      }
    else
      throwError "${where}: a NixOS module is an attribute set, a function or a file, but this is ${typeWithArticle module}";

  # Evaluate the hive's meta, cluster and roles, together with the additional modules `extra`.
  evalSettings =
    extra:
    (lib.evalModules {
      modules = [
        hiveOptions
        {
          _file = location;
          config = {
            meta = rawMeta;
            roles = hive.roles or { };
            cluster = hive.cluster or { };
          };
        }
      ]
      ++ extra;
    }).config;

  settingsWithoutSets = evalSettings [ ];
  checkedSets = map (checkSet settingsWithoutSets) sets;
  settings =
    if sets == [ ] then
      settingsWithoutSets
    else
      evalSettings (
        map (s: {
          _file = "--set ${s.text}";
          config = lib.setAttrByPath s.path (lib.mkForce s.value);
        }) checkedSets
      );
  inherit (settings) meta roles cluster;

  # Return "; did you mean PREFIX.NAME?" with the name in `names` that is most similar to the mistyped name `typed`, or "" if none
  # is.
  suggestName =
    typed: prefix: names:
    let
      letters = text: genList (i: builtins.substring i 1 text) (builtins.stringLength text);
      # Whether at most n letters must be inserted, removed or replaced to change the list of letters a into b.
      isNear =
        n: a: b:
        if a == [ ] || b == [ ] then
          length a + length b <= n
        else if head a == head b then
          isNear n (tail a) (tail b)
        else
          n > 0
          && (
            isNear (n - 1) (tail a) b || isNear (n - 1) a (tail b) || isNear (n - 1) (tail a) (tail b)
          );
      find =
        n: default:
        lib.findFirst (name: isNear n (letters typed) (letters name)) default names;
      near = find 1 (find 2 null);
    in
    if near == null then "" else "; did you mean ${prefix}${near}?";

  # Return { path; text; value; } for an argument of --set. It may also be a value from elsewhere: `where` is its place, for
  # messages. The type that the value has in config determines how the text is parsed.
  checkSet =
    config: s:
    let
      text = "${concatStringsSep "." s.path}=${s.raw}";
      throwSetError = message: throwError "${s.where or "--set ${text}"}: ${message}";
      walk =
        done: path: value:
        if path == [ ] then
          value
        else if isAttrs value && value ? ${head path} then
          walk (done ++ [ (head path) ]) (tail path) value.${head path}
        else
          throwSetError "there is no ${concatStringsSep "." (done ++ [ (head path) ])}${
            if isAttrs value && value != { } then
              "; ${if done == [ ] then "the hive" else concatStringsSep "." done} has ${
                concatStringsSep ", " (attrNames value)
              }${suggestName (head path) "${concatStringsSep "." done}." (attrNames value)}"
            else
              ""
          }";
      json = if s.isJSON then builtins.fromJSON s.raw else null;
      current = walk [ ] s.path { inherit (config) roles cluster; };
      throwTypeError = what: throwSetError "expected ${what}, as the hive has ${builtins.toJSON current} there";
      value =
        if isInt current then
          if isInt json then json else throwTypeError "a whole number"
        else if isBool current then
          if isBool json then json else throwTypeError "true or false"
        else if isString current || isPath current then
          s.raw
        else if current == null then
          if s.raw == "null" then
            null
          # cluster.endpoint.port is the only number whose default is null.
          else if isInt json && s.path == [ "cluster" "endpoint" "port" ] then
            json
          else
            s.raw
        else if isList current && lib.last s.path != "modules" then
          if isList json then json else lib.splitString "," s.raw
        else if isAttrs current then
          throwSetError "it contains several settings; use one of ${concatStringsSep ", " (attrNames current)}"
        else
          throwSetError "it cannot be set from the command line";
    in
    # Evaluate the value now: an error here is clearer than the later error of the module system.
    builtins.seq value {
      inherit (s) path;
      inherit text value;
    };

  # -- the scheduler -----------------------------------------------------------------

  schedulerNames = attrNames (foldl' (all: s: all // s.schedulers) cluster.schedulers (attrValues roles));

  # The scheduler that the hive or --set has chosen, or null.
  scheduler =
    let
      fromSet = lib.findFirst (s: s.path == [ "cluster" "scheduler" ]) null checkedSets;
    in
    checkScheduler (
      if fromSet != null then
        "--set ${fromSet.text}"
      else
        "cluster.scheduler in ${location} is ${toString cluster.scheduler}"
    ) cluster.scheduler;

  # Return the chosen scheduler if the hive has it; otherwise throw an error. `where` is the place of the choice, for the error
  # message.
  checkScheduler =
    where: chosen:
    let
      names = concatStringsSep ", " schedulerNames;
    in
    if chosen == null && schedulerNames != [ ] then
      throwError "${location} has the schedulers ${names}, and cluster.scheduler chooses none; set it, or use --set scheduler=${head schedulerNames}"
    else if chosen == null || elem chosen schedulerNames then
      chosen
    else
      throwError "${where}: ${
        if schedulerNames != [ ] then
          "the hive has the schedulers ${names}${suggestName chosen "" schedulerNames}"
        else
          "the hive has no schedulers; add cluster.schedulers.${chosen} or roles.ROLE.schedulers.${chosen}"
      }";

  # Return the modules that `cluster` or a role has for the chosen scheduler. `where` is the place of `settings`, for messages.
  schedulerModules =
    where: settings:
    if scheduler == null then
      [ ]
    else
      map (withLocation "${location}, ${where}, scheduler ${scheduler}") (
        settings.schedulers.${scheduler}.modules or [ ]
      );

  # Return the name of a value's type in Nix, with an article, such as "a string".
  typeWithArticle =
    value:
    {
      int = "an integer";
      bool = "a boolean";
      set = "an attribute set";
      lambda = "a function";
      null = "null";
    }
    .${typeOf value} or "a ${typeOf value}";

  # -- units: sets of nodes that share one closure ---------------------------------

  nodeNames = filter (name: !elem name reservedNames) (attrNames hive);

  # The maximum number of nodes of all roles together: as many as a network that nixbench creates has addresses, but at most
  # maxNodes. The Go code reports an invalid cidr of the network.
  maxNodes = 65536;
  maxRoleNodes =
    let
      inherit (cluster.network) mode cidr;
      prefix = builtins.match "[0-9.]+/([89]|1[0-9]|2[0-9])" cidr;
      addresses = foldl' (n: _: 2 * n) 1 (genList (i: i) (32 - lib.toInt (head prefix)));
    in
    # Subtract three addresses: the network's own address, the gateway and the broadcast address.
    if elem mode [ "nat" "isolated" ] && prefix != null then lib.min maxNodes (addresses - 3) else maxNodes;

  # The names of the roles. If the roles have too many nodes, throw an error before lists of nodes are created.
  countedRoles =
    let
      total = foldl' (n: r: n + r.count) 0 (attrValues roles);
      largest = head (lib.sort (a: b: roles.${a}.count > roles.${b}.count) (attrNames roles));
    in
    if total <= maxRoleNodes then
      attrNames roles
    else
      throwError "roles.${largest}.count is ${toString roles.${largest}.count}: the roles have ${toString total} nodes, and ${
        if maxRoleNodes == maxNodes then
          "a hive can have ${toString maxNodes} at most"
        else
          "cluster.network.cidr ${cluster.network.cidr} has room for ${toString maxRoleNodes}"
      }; use a smaller count${if maxRoleNodes == maxNodes then "" else " or a larger network"}";

  roleNodes = role: genList (i: "${role}-${toString (i + 1)}") roles.${role}.count;

  namedUnit = name: {
    inherit name;
    value = {
      nodes = [ name ];
      modules = map (withLocation "${location}, node ${name}") (
        if isList hive.${name} then hive.${name} else [ hive.${name} ]
      );
    };
  };

  roleModules =
    role:
    [
      {
        _file = "${location}, role ${role}";
        deployment = {
          inherit (roles.${role}) tags;
          hollow = roles.${role}.hollow or 0;
          # nixbench boots these machines and sets their addresses. So override a targetHost in `defaults`, such as
          # "''${name}.lan": it is for machines that nixbench does not boot.
          targetHost = lib.mkOverride 90 null;
        };
      }
    ]
    ++ map (withLocation "${location}, role ${role}") roles.${role}.modules
    ++ schedulerModules "role ${role}" roles.${role};

  roleUnits =
    role:
    let
      r = roles.${role};
      modules = roleModules role;
    in
    if r.perNode then
      map (name: {
        inherit name;
        value = {
          nodes = [ name ];
          inherit modules role;
        };
      }) (roleNodes role)
    else
      [
        {
          name = role;
          value = {
            inherit role;
            nodes = roleNodes role;
            modules = modules ++ [ sharedRoleModule ];
          };
        }
      ];

  units = listToAttrs (
    map namedUnit nodeNames ++ concatLists (map roleUnits countedRoles)
  );

  evalUnit =
    check: name: unit:
    let
      # Attributes for the name of a node take precedence over attributes for the name of its role.
      names = [ name ] ++ lib.optional (unit ? role) unit.role;
      override = lib.findFirst (n: meta.nodeNixpkgs ? ${n}) null names;
      pkgs =
        if override == null then
          nixpkgs
        else
          importNixpkgs "meta.nodeNixpkgs.${override}" meta.nodeNixpkgs.${override};
    in
    import (pkgs.path + "/nixos/lib/eval-config.nix") {
      system = pkgs.stdenv.hostPlatform.system;
      modules = [
        { _module.check = check; }
        (
          { options, ... }:
          {
            _file = "${location}, meta.nixpkgs";
            # Set the overlays only if the node has no package set of its own: NixOS refuses a package set together with
            # nixpkgs.config.
            config.nixpkgs = lib.mkIf (!options.nixpkgs.pkgs.isDefined) {
              overlays = lib.mkBefore (pkgs.overlays or [ ]);
              config = lib.mkBefore (pkgs.config or { });
            };
          }
        )
      ]
      ++ deploymentModules
      ++ [ (withLocation "${location}, defaults" (hive.defaults or { })) ]
      ++ schedulerModules "cluster" cluster
      ++ unit.modules
      ++ concatLists (map (modulesOf: modulesOf parts (unit.role or null)) extraModules);
      specialArgs = {
        inherit name runtime scheduler;
        nodes = uncheckedNodes;
      }
      // meta.specialArgs
      // foldl' (args: n: (meta.nodeSpecialArgs.${n} or { }) // args) { } names;
    };

  # All units, evaluated without the check that every definition has a declared option. The argument `nodes` and the survey use
  # them: they read a few options of many nodes, and the check would take longer than reading the options. For a build, `checked`
  # is used.
  unchecked = mapAttrs (evalUnit false) units;
  checked = mapAttrs (evalUnit true) units;

  # The boot image for all machines of a role. It contains the role's system, with the role's name in place of a node's name.
  imageOf =
    kind: role:
    let
      config =
        (evalUnit true role {
          inherit role;
          modules = roleModules role ++ [ sharedRoleModule ];
        }).config;
      images = config.system.build.images or { };
      wanted =
        if kind == "container" then
          "lxc"
        else if roles.${role}.firmware == "uefi" then
          "qemu-efi"
        else
          "qemu";
    in
    images.${wanted}
      or (throwError "role ${role}: its nixpkgs has no system.build.images.${wanted}; NixOS 25.05 has it, or set roles.${role}.image to an existing image");

  # The derivations that must be built for the option `image` of a role. The list is empty if the image is an existing file.
  imageDrvs =
    role:
    filter (p: builtins.match ".*\\.drv" p != null) (
      attrNames (builtins.getContext (toString roles.${role}.image))
    );

  # Convert an attribute set with one value for each unit to an attribute set with one value for each node.
  byNode =
    evaluated:
    listToAttrs (
      concatLists (
        map (
          unit:
          map (name: {
            inherit name;
            value = evaluated.${unit};
          }) units.${unit}.nodes
        ) (attrNames units)
      )
    );

  uncheckedNodes = byNode unchecked // configurations;

  # Return { NAME = f NAME; } for the names.
  forNames = names: f: listToAttrs (map (name: { inherit name; value = f name; }) names);

  # Return the SHA-256 of a file in the source of a flake, and null for any other file. The path of such a file is in the store, and
  # has no context. Nix 2.35 and later do not copy the file to the store, but can read it at this path.
  hashSourceFile =
    file:
    if
      file != null
      && lib.hasPrefix "${builtins.storeDir}/" file
      && !builtins.hasContext file
      && builtins.pathExists file
    then
      builtins.hashFile "sha256" file
    else
      null;

  deploymentOf = d: {
    inherit (d)
      allowLocalDeployment
      buildOnTarget
      privilegeEscalationCommand
      replaceUnknownProfiles
      sshOptions
      tags
      targetHost
      targetPort
      targetUser
      ;
    # A hive that Colmena's makeHive has evaluated does not have the option.
    optional = d.optional or false;
    engine = d.engine or null;
    client = d.client or null;
    healthChecks = d.healthChecks or { };
    # Null if the system imports none of nixbench's modules.
    modules = d.modules or null;
    keys = mapAttrs (_: key: {
      # Keys in a hive that Colmena's makeHive has evaluated do not have the option `generated`.
      generated = key.generated or null;
      fileHash = hashSourceFile key.keyFile;
      inherit (key)
        destDir
        group
        keyCommand
        keyFile
        name
        path
        permissions
        text
        uploadAt
        user
        ;
    }) d.keys;
  };

  # Return the deployment options of a system. If `specialisation` is set and the system has this specialisation, return those of
  # the specialisation.
  selectDeployment =
    config:
    let
      selected = if specialisation == null then null else config.specialisation.${specialisation} or null;
      inherit (selected.configuration) deployment;
      chosen =
        if selected == null then
          config.deployment
        else
          # Add the keys of the system without the specialisation. The system is evaluated together with the specialisation, and
          # may need facts about its own keys.
          deployment // { keys = config.deployment.keys // deployment.keys; };
    in
    chosen // { modules = config.nixbench.modulesFolder or null; };

  closureOf = toplevel: {
    drv = toplevel.drvPath;
    # The attribute is not named `outPath`, because Nix prints a set with `outPath` as a string in
    # JSON.
    out = toplevel.outPath;
    inherit (toplevel) system;
  };

  # The argument of the functions that the Go code passes to this file. It contains the hive, and how this file reads it.
  parts = {
    inherit
      hive
      lib
      location
      roles
      suggestName
      throwError
      typeWithArticle
      withLocation
      ;
    # Throw an error if the hive does not accept one of the values in a list [ { path; raw; isJSON; where; } ]. Each value is
    # checked alone, without the others.
    checkSets = foldl' (
      _: l:
      let
        checked = checkSet settingsWithoutSets l;
        config = evalSettings [
          {
            _file = l.where;
            config = lib.setAttrByPath l.path (lib.mkForce checked.value);
          }
        ];
      in
      builtins.seq checked (
        builtins.seq (
          if l.path == [ "cluster" "scheduler" ] then
            checkScheduler l.where checked.value
          else
            lib.getAttrFromPath l.path config
        ) true
      )
    ) true;
  };

  # The attributes that the Go code uses, for a hive that this file itself evaluates.
  native = {
    inherit parts;
    inherit lib pkgs;
    nodes = byNode checked;

    skeleton = {
      meta = {
        inherit (meta)
          name
          description
          machinesFile
          allowApplyAll
          ;
      };
      named = nodeNames;
      roles = mapAttrs (
        _: r:
        removeAttrs r [
          "modules"
          "schedulers"
        ]
        // {
          image = if r.image == null then null else toString r.image;
        }
      ) roles;
      cluster = removeAttrs cluster [ "schedulers" ] // {
        inherit scheduler;
        declared = hive ? cluster;
      };
      units = attrNames units;
    };
    deployment = name: deploymentOf (selectDeployment unchecked.${name}.config);
    closure = name: closureOf checked.${name}.config.system.build.toplevel;
    image = kind: role: closureOf (imageOf kind role);
    inherit imageDrvs;
    introspect =
      f:
      if isFunction f || (isAttrs f && f ? __functor) then
        f {
          inherit lib pkgs;
          nodes = uncheckedNodes;
        }
      else
        throwError "the expression must be a function of { pkgs, lib, nodes, ... }, but it is ${typeWithArticle f}";
  };

  # The attributes that the Go code uses, for a hive that Colmena's makeHive has evaluated. Such a hive has closures, but no roles and no facts.
  fromColmena = {
    parts = throwError "${location} is a hive that Colmena has evaluated; it has no roles";
    inherit (hive) nodes;
    inherit (hive.introspect (args: args)) lib pkgs;
    skeleton =
      if sets != [ ] then
        throwError "--set ${concatStringsSep "." (head sets).path}: ${location} is a hive that Colmena has evaluated; it has no roles and no cluster"
      else
        {
          meta = {
            name = hive.metaConfig.name or "hive";
            description = hive.metaConfig.description or "";
            machinesFile = hive.metaConfig.machinesFile or null;
            allowApplyAll = hive.metaConfig.allowApplyAll or true;
          };
          named = attrNames hive.nodes;
          roles = { };
          cluster = null;
          units = attrNames hive.nodes;
        };
    # The nodes of introspect have no check that every definition has a declared option, which takes longer than all that a survey
    # reads. A build uses checked nodes.
    deployment = name: deploymentOf (selectDeployment (hive.introspect (args: args.nodes)).${name}.config);
    closure = name: closureOf hive.toplevel.${name};
    inherit (hive) introspect;
  };

  evaluatedHive =
    if !(hive ? __schema) then
      native
    else if hive ? toplevel && hive ? deploymentConfig && hive ? introspect then
      fromColmena
    else
      throwError "${location} has __schema, as an evaluated hive, but lacks toplevel, deploymentConfig or introspect";

  # The attributes that the Go code uses, for a flake with a hive and nixosConfigurations: each combines the values for both.
  evaluated =
    if configurations == { } then
      evaluatedHive
    else
      evaluatedHive
      // {
        nodes = evaluatedHive.nodes // configurations;
        skeleton = evaluatedHive.skeleton // {
          named = evaluatedHive.skeleton.named ++ attrNames configurations;
          units = evaluatedHive.skeleton.units ++ attrNames configurations;
        };
        deployment =
          name: if configurations ? ${name} then deploymentOfConfiguration name else evaluatedHive.deployment name;
        closure =
          name:
          if configurations ? ${name} then
            closureOf configurations.${name}.config.system.build.toplevel
          else
            evaluatedHive.closure name;
      };
in
evaluated
// {
  # Return everything that does not depend on units. Add the deployment options of the units named in `units`; if `units` is a
  # number, of that many first units.
  survey =
    units:
    evaluated.skeleton
    // {
      deployments = forNames (
        if isInt units then evaluated.lib.take units evaluated.skeleton.units else units
      ) evaluated.deployment;
    };
  instantiate = names: forNames names evaluated.closure;
  images = kind: names: forNames names (evaluated.image kind);

  # Return the paths of all derivations in a value, for `eval --instantiate`.
  drvPaths =
    let
      walk =
        value:
        if isAttrs value && value.type or null == "derivation" then
          [ value.drvPath ]
        else if isAttrs value then
          concatLists (map walk (attrValues value))
        else if isList value then
          concatLists (map walk value)
        else
          throwError "--instantiate needs derivations, or sets and lists of them, but the expression gives ${typeWithArticle value}";
    in
    walk;
}
