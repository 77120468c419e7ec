{ lib }:
let
  inherit (lib) mkOption types;
  is = expected: expr: { inherit expr expected; };
  fails = expr: is false (builtins.tryEval (builtins.deepSeq expr expr)).success;

  eval = modules: lib.evalModules { inherit modules; };
  config = modules: (eval modules).config;
  # One option `x` of a type, and definitions of it.
  merge = type: defs: (config ([ { options.x = mkOption { inherit type; }; } ] ++ map (x: { config = { inherit x; }; }) defs)).x;
  opt = type: mkOption { inherit type; };
in
{
  # priorities
  forceWins = is 3 (merge types.int [ 1 (lib.mkForce 3) ]);
  defaultLoses = is 1 (merge types.int [ 1 (lib.mkDefault 3) ]);
  optionDefaultLoses = is 2 (
    config [ { options.x = mkOption { type = types.int; default = 1; }; } { x = lib.mkDefault 2; } ]
  ).x;
  overrideOfSet = is { a.b = 1; } (config [ { options.a.b = opt types.int; } { a = lib.mkForce { b = 1; }; } { a.b = 2; } ]);

  # conditions
  ifs = is [ 1 ] (merge (types.listOf types.int) [ (lib.mkIf true [ 1 ]) (lib.mkIf false [ 2 ]) ]);
  conditionOnConfig = is true (
    config [
      { options = { a = opt types.bool; b = opt types.bool; }; }
      ({ config, ... }: { config = lib.mkIf config.a { b = true; }; })
      { a = true; }
    ]
  ).b;
  mergeOfIfs = is [ 1 2 ] (merge (types.listOf types.int) [ (lib.mkMerge [ [ 1 ] (lib.mkIf true [ 2 ]) ]) ]);
  nestedInList = is [ 1 3 ] (merge (types.listOf types.int) [ [ 1 (lib.mkIf false 2) 3 ] ]);

  # order
  order = is [ 1 2 3 ] (merge (types.listOf types.int) [ [ 2 ] (lib.mkAfter [ 3 ]) (lib.mkBefore [ 1 ]) ]);
  listOrder = is [ "second" "first" ] (
    merge (types.listOf types.str) [ [ "first" ] [ "second" ] ]
  );
  importOrder = is [ "c" "b" "a" ] (
    config [
      { options.x = opt (types.listOf types.str); }
      { imports = [ { x = [ "c" ]; } ]; x = [ "a" ]; }
      { x = [ "b" ]; }
    ]
  ).x;

  # types
  lines = is "b\na" (merge types.lines [ "a" "b" ]);
  commas = is "b,a" (merge types.commas [ "a" "b" ]);
  equalStrings = is "a" (merge types.str [ "a" "a" ]);
  enums = fails (merge (types.enum [ "a" ]) [ "b" ]);
  enumsMerge = is "b" (
    config [
      { options.x = opt (types.enum [ "a" ]); }
      { options.x = opt (types.enum [ "b" ]); }
      { x = "b"; }
    ]
  ).x;
  nulls = is null (merge (types.nullOr types.int) [ null ]);
  nullDefault = is [ { a = null; } ] [ (merge (types.attrsOf (types.nullOr types.int)) [ { a = null; } ]) ];
  oneOfs = fails (merge (types.oneOf [ types.int types.str ]) [ true ]);
  coerced = is [ 5 6 ] (map (d: merge (types.coercedTo types.str lib.toInt types.int) [ d ]) [ "5" 6 ]);
  nonEmptyLists = fails (merge (types.nonEmptyListOf types.int) [ [ ] ]);
  attrsMerge = is { a = 1; b = 2; } (merge (types.attrsOf types.int) [ { a = 1; } { b = 2; } ]);
  attrsIf = is { b = 2; } (merge (types.attrsOf types.int) [ { a = lib.mkIf false 1; b = 2; } ]);
  lazyAttrsIf = is true (merge (types.lazyAttrsOf types.int) [ { a = lib.mkIf false 1; } ] ? a);
  lazyAttrsLazy = is 1 (merge (types.lazyAttrsOf types.int) [ { a = 1; b = throw "unused"; } ]).a;
  anythings = is { a = { b = 1; c = 2; }; } (merge types.anything [ { a.b = 1; } { a.c = 2; } ]);
  anythingLists = fails (merge types.anything [ [ 1 ] [ 2 ] ]);
  anythingEqual = is 1 (merge types.anything [ 1 1 ]);
  anythingFunctions = is { a = 1; b = 2; } (merge types.anything [ (x: { a = x; }) (x: { b = x + 1; }) ] 1);
  uniqOnce = fails (merge (types.uniq types.int) [ 1 1 ]);
  unspecifieds = is [ 2 1 ] (merge types.unspecified [ [ 1 ] [ 2 ] ]);
  functionsTo = is [ 2 1 ] (merge (types.functionTo (types.listOf types.int)) [ (x: [ x ]) (x: [ (x + 1) ]) ] 1);
  checksAdded = fails (merge (types.addCheck types.int (x: x > 3)) [ 3 ]);
  packages = is "/nix/store/x" (merge types.package [ { type = "derivation"; outPath = "/nix/store/x"; } ]).outPath;
  pathsAsStrings = is "/a" (merge types.path [ "/a" ]);
  emptyList = is [ ] (config [ { options.x = opt (types.listOf types.int); } ]).x;

  # submodules
  submodules = is { a = { n = "a"; v = 1; }; } (
    merge (types.attrsOf (types.submodule ({ name, ... }: {
      options.n = mkOption { default = name; };
      options.v = mkOption { default = 0; };
    }))) [ { a.v = 1; } ]
  );
  submoduleConfigArg = is 3 (
    merge (types.submodule ({ config, ... }: {
      options.a = opt types.int;
      options.b = opt types.int;
      config.b = config.a + 1;
    })) [ { a = 2; } ]
  ).b;
  submoduleFunctions = is 2 (
    merge (types.submodule { options.a = opt types.int; }) [ ({ ... }: { a = 2; }) ]
  ).a;
  submoduleShorthandConfig = is 7 (
    merge (types.submodule { options.config = opt types.int; }) [ { config = 7; } ]
  ).config;
  submoduleWithFullModules = is 4 (
    merge (types.submoduleWith { modules = [ { options.a = opt types.int; } ]; }) [
      { config.a = 4; imports = [ ]; }
    ]
  ).a;
  submoduleSpecialArgs = is "yes" (
    merge (types.submoduleWith {
      specialArgs.flag = "yes";
      modules = [ ({ flag, ... }: { options.a = mkOption { default = flag; }; }) ];
    }) [ { } ]
  ).a;
  submodulesExtended = is { a = 1; b = 2; } (
    config [
      { options.x = opt (types.submodule { options.a = mkOption { default = 1; }; }); }
      { options.x = opt (types.submodule { options.b = mkOption { default = 2; }; }); }
      { x = { }; }
    ]
  ).x;
  optionsBelowSubmodules = is { a = 1; b = 2; } (
    config [
      { options.x = mkOption { type = types.submodule { options.a = mkOption { default = 1; }; }; default = { }; }; }
      { options.x.b = mkOption { default = 2; }; }
    ]
  ).x;
  freeform = is { a = 1; b = "x"; } (
    merge (types.submodule { freeformType = types.attrsOf types.str; options.a = opt types.int; }) [ { a = 1; b = "x"; } ]
  );
  freeformNested = is { a.b = 1; a.c = 2; } (
    config [
      { freeformType = types.attrsOf (types.attrsOf types.int); options.a.b = opt types.int; }
      { a.b = 1; a.c = 2; }
    ]
  );
  freeformWrongType = fails (
    merge (types.submodule { freeformType = types.attrsOf types.int; }) [ { b = "x"; } ]
  );
  freeformEmpty = is { a = 1; } (
    config [ { freeformType = types.attrsOf types.str; options.a = mkOption { default = 1; }; } ]
  );
  deferred = is [ 1 2 ] (
    config [
      { imports = [ (config [ { options.m = opt types.deferredModule; } { m = { x = [ 1 ]; }; } { m = { x = [ 2 ]; }; } ]).m ]; }
      { options.x = opt (types.listOf types.int); }
    ]
  ).x;

  # options
  apply = is 10 (config [ { options.x = mkOption { default = 1; apply = x: x * 10; }; } ]).x;
  readOnlyOnce = is 1 (config [ { options.x = mkOption { readOnly = true; }; } { x = 1; } ]).x;
  typeAndDefaultApart = is 1 (
    config [ { options.x = opt types.int; } { options.x = mkOption { default = 1; }; } ]
  ).x;
  unknownUnchecked = is 1 (config [ { options.x = opt types.int; } { _module.check = false; y = 1; x = 1; } ]).x;
  metadata = is
    {
      isDefined = true;
      highestPrio = 50;
      value = 2;
      definitions = [ 2 ];
      files = [ "b.nix" ];
      locations = [ { file = "b.nix"; value = 2; } ];
      declarations = [ "d.nix" ];
      loc = [ "x" ];
      shown = "x";
    }
    (
      let
        o = (eval [
          { _file = "d.nix"; options.x = opt types.int; }
          { _file = "a.nix"; x = 1; }
          { _file = "b.nix"; x = lib.mkForce 2; }
        ]).options.x;
      in
      {
        inherit (o) declarations definitions files highestPrio isDefined loc value;
        locations = o.definitionsWithLocations;
        shown = "${o}";
      }
    );
  undefinedMetadata = is [ false 9999 ] (
    let
      o = (eval [ { options.x = opt types.int; } ]).options.x;
    in
    [ o.isDefined o.highestPrio ]
  );
  defaultMetadata = is [ true 1500 ] (
    let
      o = (eval [ { options.x = mkOption { default = 1; }; } ]).options.x;
    in
    [ o.isDefined o.highestPrio ]
  );
  packageOption = is [ "p" "pkgs.a.b" "The b package to use. More." ] (
    let
      o = lib.mkPackageOption { a.b = "p"; } [ "a" "b" ] { extraDescription = "More."; };
    in
    [ o.default o.defaultText.text o.description ]
  );
  packageOptionMissing = fails (lib.mkPackageOption { } "a" { }).default;
  showOption = is "a.\"b.c\".<name>.*" (lib.showOption [ "a" "b.c" "<name>" "*" ]);

  # modules
  moduleArgs = is 5 (
    config [
      { options.x = opt types.int; }
      ({ five, ... }: { x = five; })
      { _module.args.five = 5; }
    ]
  ).x;
  moduleArgsLazy = is 1 (
    config [
      { options.x = opt types.int; }
      ({ unused, ... }: { x = 1; })
    ]
  ).x;
  specialArgs = is 6 (
    (lib.evalModules {
      specialArgs.extra = [ { x = 6; } ];
      modules = [
        { options.x = opt types.int; }
        ({ extra, ... }: { imports = extra; })
      ];
    }).config.x
  );
  importedFileTwice = is [ "once" ] (
    config [
      { options.x = opt (types.listOf types.str); }
      ./samples/once.nix
      { imports = [ ./samples/once.nix ]; }
    ]
  ).x;
  keyedTwice = is [ "a" ] (
    config [
      { options.x = opt (types.listOf types.str); }
      { key = "k"; x = [ "a" ]; }
      { key = "k"; x = [ "b" ]; }
    ]
  ).x;
  disabled = is [ ] (
    config [
      { options.x = opt (types.listOf types.str); }
      ./samples/once.nix
      { disabledModules = [ ./samples/once.nix ]; }
    ]
  ).x;
  disabledByKey = is [ ] (
    config [
      { options.x = opt (types.listOf types.str); }
      { key = "k"; x = [ "a" ]; }
      { disabledModules = [ { key = "k"; } ]; }
    ]
  ).x;
  disabledByName = is [ ] (
    (lib.evalModules {
      specialArgs.modulesPath = toString ./samples;
      modules = [
        { options.x = opt (types.listOf types.str); }
        ./samples/once.nix
        { disabledModules = [ "once.nix" ]; }
      ];
    }).config.x
  );
  filesInErrors = is [ "${toString ./samples/once.nix}" ] (eval [
    { options.x = opt (types.listOf types.str); }
    ./samples/once.nix
  ]).options.x.files;
  topLevelIf = is 1 (config [ { options.x = opt types.int; } (lib.mkIf true { x = 1; }) ]).x;
  extendModules = is [ 1 2 ] (
    let
      e = eval [ { options.x = mkOption { default = 1; }; } ];
    in
    [ e.config.x (e.extendModules { modules = [ { x = 2; } ]; }).config.x ]
  );
  evaluationAsType = is 2 (
    merge (eval [ { options.a = mkOption { default = 1; }; } ]).type [ { a = 2; } ]
  ).a;
  laziness = is 1 (
    config [
      { options = { x = opt types.int; y = opt types.int;  }; }
      { x = 1; y = throw "unused"; }
    ]
  ).x;
  lazyWithoutCheck = is 1 (
    config [
      { options.x = opt types.int; }
      { _module.check = false; x = 1; z = throw "unused"; }
    ]
  ).x;
  classes = fails (
    (lib.evalModules {
      class = "nixos";
      modules = [ { _class = "darwin"; options.x = mkOption { default = 1; }; } ];
    }).config.x
  );
  locationDefault = is [ "f.nix" ] (eval [
    { options.x = opt types.int; }
    (lib.setDefaultModuleLocation "f.nix" { x = 1; })
  ]).options.x.files;

  # renames
  renamed = is [ 1 1 ] (
    let
      c = config [
        (lib.mkAliasOptionModule [ "old" ] [ "new" "name" ])
        { options.new.name = opt types.int; options.warnings = opt (types.listOf types.str); }
        { old = 1; }
      ];
    in
    [ c.old c.new.name ]
  );
  renamedWarns = is [ "The option `old' defined in `u.nix' has been renamed to `new'." ] (
    config [
      (lib.mkRenamedOptionModule [ "old" ] [ "new" ])
      { options.new = opt types.int; options.warnings = opt (types.listOf types.str); }
      { _file = "u.nix"; old = 1; }
    ]
  ).warnings;
  renamedPriority = is 2 (
    config [
      (lib.mkAliasOptionModule [ "old" ] [ "new" ])
      { options.new = opt types.int; }
      { old = lib.mkForce 2; new = 1; }
    ]
  ).new;
  removed = is [ false ] (
    map (a: a.assertion) (config [
      (lib.mkRemovedOptionModule [ "old" ] "Use new.")
      { options.assertions = opt (types.listOf types.unspecified); }
      { old = 1; }
    ]).assertions
  );
  derivedPriority = is 50 (
    let
      e = eval [
        { options = { a = opt types.int; b = opt types.int; }; }
        ({ options, ... }: { b = lib.mkDerivedConfig options.a (a: a + 1); })
        { a = lib.mkForce 1; }
      ];
    in
    e.options.b.highestPrio
  );
  docs = is [ "x" "x.<name>.a" ] (
    map (o: o.name) (
      lib.filter (o: !lib.hasPrefix "_module" o.name && !lib.hasInfix "_module" o.name) (
        lib.optionAttrSetToDocList
          (eval [ { options.x = opt (types.attrsOf (types.submodule { options.a = opt types.int; })); } ]).options
      )
    )
  );
}
