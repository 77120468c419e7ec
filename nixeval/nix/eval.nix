# Evaluates a hive. The Go code wraps this file and the modules that it takes as arguments into one
# expression, so nothing is written into the user's folder. It must evaluate with Nix 2.8, in pure
# mode, and with any `lib` of nixpkgs since 22.11.
{
  # Modules of nixbench, as values: the options of hives, roles and deployments.
  hiveOptions,
  deploymentModules,
  sharedRoleModule,
  # The hive's name for messages: a file, or a flake output.
  location,
  # If true, the hive must set meta.nixpkgs (a flake); if false, <nixpkgs> is the default.
  hermetic,
  # The facts, or null if there are no machines yet.
  runtime,
  # [ { path; raw; isJSON; } ]: --set, in order.
  sets,
}:
rawHive:
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

  # The Go code recognises messages of this file by the prefix and shows them without a trace.
  fail = message: throw "nixbench: ${message}";

  reservedNames = [
    "meta"
    "network"
    "defaults"
    "roles"
    "cluster"
  ];

  hive =
    let
      called =
        if isFunction rawHive || (isAttrs rawHive && rawHive ? __functor) then rawHive { } else rawHive;
    in
    if !isAttrs called then
      fail "${location} must give an attribute set (or a function that returns one), but it gives ${aType called}"
    else if called ? type && called.type == "derivation" then
      fail "${location} must give an attribute set of nodes, but it gives a derivation"
    else if called ? meta && called ? network then
      fail "${location} has both `meta` and `network`; keep `meta` (`network` is its old name)"
    else
      called;

  rawMeta = hive.meta or hive.network or { };

  # -- nixpkgs ---------------------------------------------------------------

  importNixpkgs =
    option: value:
    let
      inFlake = what: fail ''
        ${option} in ${location} is ${what}, and a flake stays pure only with a package set. Write

          ${option} = import nixpkgs { system = "x86_64-linux"; };'';
    in
    if isPath value || isString value then
      if hermetic then inFlake "a path" else importNixpkgs option (import value)
    else if isAttrs value && !(value ? lib && value ? path && value ? config) && value ? outPath then
      if hermetic then inFlake "a flake input or a path" else importNixpkgs option (import value)
    else if isFunction value then
      if hermetic then inFlake "a function" else value { overlays = [ ]; }
    else if isAttrs value && value ? lib && value ? path && value ? config then
      value
    else
      fail "${option} in ${location} must be a path to nixpkgs, a function such as `import <nixpkgs>`, or a package set, but it is ${aType value}";

  nixpkgs =
    # Read nixpkgs from the raw meta, because evaluating meta needs nixpkgs' lib. If meta is a
    # function, <nixpkgs> is used, as in Colmena.
    if isAttrs rawMeta && rawMeta.nixpkgs or null != null then
      importNixpkgs "meta.nixpkgs" rawMeta.nixpkgs
    else if hermetic then
      fail ''
        ${location} does not set meta.nixpkgs. Write

          meta.nixpkgs = import nixpkgs { system = "x86_64-linux"; };''
    else
      importNixpkgs "<nixpkgs>" <nixpkgs>;

  inherit (nixpkgs) lib;

  # -- meta, cluster, roles: type-checked; every error names the file -----------

  located =
    where: module:
    if isPath module || isString module then
      module
    else if isAttrs module || isFunction module then
      {
        _file = where;
        imports = [ module ];
      }
    else
      fail "${where}: a NixOS module is an attribute set, a function or a file, but this is ${aType module}";

  top =
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

  asWritten = top [ ];
  checkedSets = map (checkSet asWritten) sets;
  settings =
    if sets == [ ] then
      asWritten
    else
      top (
        map (s: {
          _file = "--set ${s.text}";
          config = lib.setAttrByPath s.path (lib.mkForce s.value);
        }) checkedSets
      );
  inherit (settings) meta roles cluster;

  # The type of the current value decides how the text is parsed.
  checkSet =
    config: s:
    let
      text = "${concatStringsSep "." s.path}=${s.raw}";
      bad = message: fail "--set ${text}: ${message}";
      walk =
        done: path: value:
        if path == [ ] then
          value
        else if isAttrs value && value ? ${head path} then
          walk (done ++ [ (head path) ]) (tail path) value.${head path}
        else
          bad "there is no ${concatStringsSep "." (done ++ [ (head path) ])}${
            if isAttrs value && value != { } then
              "; ${if done == [ ] then "the hive" else concatStringsSep "." done} has ${
                concatStringsSep ", " (attrNames value)
              }"
            else
              ""
          }";
      json = if s.isJSON then builtins.fromJSON s.raw else null;
      current = walk [ ] s.path { inherit (config) roles cluster; };
      expects = what: bad "expected ${what}, as the hive has ${builtins.toJSON current} there";
      value =
        if isInt current then
          if isInt json then json else expects "a whole number"
        else if isBool current then
          if isBool json then json else expects "true or false"
        else if isString current || isPath current then
          s.raw
        else if current == null then
          if s.raw == "null" then null else s.raw
        else if isList current && lib.last s.path != "modules" then
          if isList json then json else lib.splitString "," s.raw
        else if isAttrs current then
          bad "it contains several settings; use one of ${concatStringsSep ", " (attrNames current)}"
        else
          bad "it cannot be set from the command line";
    in
    # Evaluate the value here, because this error message is clearer than the module system's.
    builtins.seq value {
      inherit (s) path;
      inherit text value;
    };

  # Nix's names for its types, with an article.
  aType =
    value:
    {
      int = "an integer";
      bool = "a boolean";
      set = "an attribute set";
      lambda = "a function";
      null = "null";
    }
    .${typeOf value} or "a ${typeOf value}";

  # -- units: each is evaluated once --------------------------------------------

  nodeNames = filter (name: !elem name reservedNames) (attrNames hive);

  # The number of nodes that all roles can have together: the addresses in a network that nixbench
  # makes, and at most 65536. Errors in the range itself are reported by the plan.
  maxNodes = 65536;
  room =
    let
      inherit (cluster.network) mode cidr;
      prefix = builtins.match "[0-9.]+/([89]|1[0-9]|2[0-9])" cidr;
      addresses = foldl' (n: _: 2 * n) 1 (genList (i: i) (32 - lib.toInt (head prefix)));
    in
    # Subtract the network's own address, the gateway and the broadcast address.
    if elem mode [ "nat" "isolated" ] && prefix != null then lib.min maxNodes (addresses - 3) else maxNodes;

  # Check the count before a list of nodes or units is made.
  countedRoles =
    let
      total = foldl' (n: r: n + r.count) 0 (attrValues roles);
      largest = head (lib.sort (a: b: roles.${a}.count > roles.${b}.count) (attrNames roles));
    in
    if total <= room then
      attrNames roles
    else
      fail "roles.${largest}.count is ${toString roles.${largest}.count}: the roles have ${toString total} nodes, and ${
        if room == maxNodes then
          "a hive can have ${toString maxNodes} at most"
        else
          "cluster.network.cidr ${cluster.network.cidr} has room for ${toString room}"
      }; use a smaller count${if room == maxNodes then "" else " or a larger network"}";

  roleNodes = role: genList (i: "${role}-${toString (i + 1)}") roles.${role}.count;

  namedUnit = name: {
    inherit name;
    value = {
      nodes = [ name ];
      modules = map (located "${location}, node ${name}") (
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
          # nixbench boots these machines and sets their addresses. Defaults such as "''${name}.lan"
          # are for machines that already exist.
          targetHost = lib.mkOverride 90 null;
        };
      }
    ]
    ++ map (located "${location}, role ${role}") roles.${role}.modules;

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
      # Settings for a node take precedence over settings for its role.
      names = [ name ] ++ lib.optional (unit ? role) unit.role;
      own = lib.findFirst (n: meta.nodeNixpkgs ? ${n}) null names;
      pkgs =
        if own == null then
          nixpkgs
        else
          importNixpkgs "meta.nodeNixpkgs.${own}" meta.nodeNixpkgs.${own};
    in
    import (pkgs.path + "/nixos/lib/eval-config.nix") {
      system = pkgs.stdenv.hostPlatform.system;
      modules = [
        {
          _file = "${location}, meta.nixpkgs";
          _module.check = check;
          nixpkgs.overlays = lib.mkBefore (pkgs.overlays or [ ]);
          nixpkgs.config = lib.mkBefore (pkgs.config or { });
        }
      ]
      ++ deploymentModules
      ++ [ (located "${location}, defaults" (hive.defaults or { })) ]
      ++ unit.modules;
      specialArgs = {
        inherit name runtime;
        nodes = uncheckedNodes;
      }
      // meta.specialArgs
      // foldl' (args: n: (meta.nodeSpecialArgs.${n} or { }) // args) { } names;
    };

  # Used for `nodes` and the survey, which read a few options of many nodes. Checking that every
  # definition has an option would cost more than reading those options. Nodes that are built are
  # checked in full by `checked`.
  unchecked = mapAttrs (evalUnit false) units;
  checked = mapAttrs (evalUnit true) units;

  # The boot image of a role: the role's system without facts and without a node name. All nodes of
  # the role boot from it.
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
      or (fail "role ${role}: its nixpkgs has no system.build.images.${wanted}; NixOS 25.05 has it, or set roles.${role}.image to an existing image");

  # The derivations of the image that a role sets, if the image is a store path that must be built.
  imageDrvs =
    role:
    filter (p: builtins.match ".*\\.drv" p != null) (
      attrNames (builtins.getContext (toString roles.${role}.image))
    );

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

  uncheckedNodes = byNode unchecked;

  pick = names: f: listToAttrs (map (name: { inherit name; value = f name; }) names);

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
    engine = d.engine or null;
    keys = mapAttrs (_: key: {
      # Hives that Colmena has evaluated do not have it.
      generated = key.generated or null;
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

  closureOf = toplevel: {
    drv = toplevel.drvPath;
    # The name is not `outPath`, because in JSON a set with `outPath` becomes a string.
    out = toplevel.outPath;
    inherit (toplevel) system;
  };

  ours = {
    inherit lib;
    pkgs = nixpkgs;
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
        removeAttrs r [ "modules" ]
        // {
          image = if r.image == null then null else toString r.image;
        }
      ) roles;
      cluster = cluster // {
        declared = hive ? cluster;
      };
      units = attrNames units;
    };
    deployment = name: deploymentOf unchecked.${name}.config.deployment;
    closure = name: closureOf checked.${name}.config.system.build.toplevel;
    image = kind: role: closureOf (imageOf kind role);
    inherit imageDrvs;
    introspect =
      f:
      if isFunction f || (isAttrs f && f ? __functor) then
        f {
          inherit lib;
          pkgs = nixpkgs;
          nodes = uncheckedNodes;
        }
      else
        fail "the expression must be a function of { pkgs, lib, nodes, ... }, but it is ${aType f}";
  };

  # A hive that Colmena's makeHive has already evaluated. It has its own closures, but no roles and
  # no facts.
  prepared = {
    inherit (hive) nodes;
    inherit (hive.introspect (args: args)) lib pkgs;
    skeleton =
      if sets != [ ] then
        fail "--set ${concatStringsSep "." (head sets).path}: ${location} is a hive that Colmena has evaluated; it has no roles and no cluster"
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
    deployment = name: deploymentOf hive.deploymentConfig.${name};
    closure = name: closureOf hive.toplevel.${name};
    inherit (hive) introspect;
  };

  evaluated =
    if !(hive ? __schema) then
      ours
    else if hive ? toplevel && hive ? deploymentConfig && hive ? introspect then
      prepared
    else
      fail "${location} has __schema, as an evaluated hive, but lacks toplevel, deploymentConfig or introspect";
in
evaluated
// {
  # Returns everything that is cheap to evaluate. `null` means every unit. The Go code passes a list
  # of units to find the units that fail.
  survey =
    names:
    evaluated.skeleton
    // {
      deployments = pick (if names == null then evaluated.skeleton.units else names) evaluated.deployment;
    };
  instantiate = names: pick names evaluated.closure;
  images = kind: names: pick names (evaluated.image kind);

  # The result of `eval --instantiate`: every derivation in a value.
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
          fail "--instantiate needs derivations, or sets and lists of them, but the expression gives ${aType value}";
    in
    walk;
}
