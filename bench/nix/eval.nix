# Evaluates the benchmarks of a hive. The Go code passes the NixOS module that declares the options of benchmarks, and `parts` of the hive
# (nixeval/nix/eval.nix).
options: parts:
let
  inherit (builtins)
    attrNames
    attrValues
    concatLists
    concatStringsSep
    filter
    foldl'
    head
    isAttrs
    isBool
    isList
    length
    mapAttrs
    removeAttrs
    ;
  inherit (parts)
    hive
    lib
    location
    roles
    suggestName
    throwError
    typeWithArticle
    withLocation
    ;

  # Evaluate benchmarks. `where` is the place of their definitions in error messages.
  evalBenchmarks =
    where: value:
    (lib.evalModules {
      modules = [
        options
        {
          _file = where;
          config.benchmarks = value;
        }
      ];
    }).config.benchmarks;

  benchmarks = evalBenchmarks location (hive.benchmarks or { });

  # Return { all; roles; }: the modules of a level for all nodes, and the modules for the nodes of each role. Throw errors in the level.
  checkModules =
    where: value:
    let
      checkList =
        place: list:
        if isList list then
          map (withLocation place) list
        else
          throwError "${place}: modules are a list, but this is ${typeWithArticle list}";
      checkRole =
        role: list:
        if roles ? ${role} then
          checkList "${where}.roles.${role}" list
        else
          throwError "${where}.roles.${role}: there is no role ${role}; the hive has ${
            if roles == { } then "no roles" else "the roles ${concatStringsSep ", " (attrNames roles)}"
          }${suggestName role "" (attrNames roles)}";
    in
    if isList value then
      {
        all = checkList where value;
        roles = { };
      }
    else if isAttrs value && attrNames value == [ "roles" ] && isAttrs value.roles then
      {
        all = [ ];
        roles = mapAttrs checkRole value.roles;
      }
    else
      throwError "${where}: a level is a list of NixOS modules, or { roles.ROLE = [ modules ]; }, but this is ${
        if isAttrs value && value != { } then
          "a set with ${concatStringsSep ", " (attrNames value)}"
        else
          typeWithArticle value
      }";

  # Return the modules of a level for the nodes of a role. role is null for nodes without a role, which the hive names one by one.
  levelModules =
    role:
    {
      benchmark,
      factor,
      level,
    }:
    let
      modules = checkModules "benchmarks.${benchmark}: matrix.${factor}.${level}" benchmarks.${benchmark}.matrix.${factor}.${level};
    in
    modules.all ++ (if role == null then [ ] else modules.roles.${role} or [ ]);

  # Return the name of the benchmark that defines the modules of a factor that the command line names. Return null if none does.
  findModules =
    factor:
    let
      found = filter (name: isAttrs (benchmarks.${name}.matrix.${factor} or null)) (attrNames benchmarks);
    in
    if length found > 1 then
      throwError "benchmarks.adhoc: matrix.${factor}: the modules of its levels are in ${
        concatStringsSep " and " (map (name: "benchmarks.${name}") found)
      }; rename the factor in one of them"
    else
      lib.findFirst (_: true) null found;

  # Return a benchmark without functions, for JSON. Levels are texts as in --set. `cells` has all cells that are not excluded. `modules`
  # has, for each factor whose levels are modules, the name of the benchmark of the hive that defines these modules.
  describeBenchmark =
    modulesOf: name: b:
    let
      modules = lib.filterAttrs (_: definedIn: definedIn != null) (
        mapAttrs (factor: _: modulesOf name factor) b.matrix
      );
      throwMatrixError = message: throwError "benchmarks.${name}: matrix.${message}";
      # The levels of a factor. An error in the modules of a level is thrown first.
      levelsOf =
        factor: value:
        let
          defined = benchmarks.${modules.${factor}}.matrix.${factor};
          names = if isAttrs value then attrNames value else value;
          checkLevel =
            level:
            let
              checked =
                if defined ? ${level} then
                  checkModules "benchmarks.${modules.${factor}}: matrix.${factor}.${level}" defined.${level}
                else
                  throwMatrixError "${factor} has ${level}, and benchmarks.${modules.${factor}} has the levels ${concatStringsSep ", " (attrNames defined)}${suggestName level "" (attrNames defined)}";
            in
            foldl' (all: module: builtins.seq module all) level (
              concatLists ([ checked.all ] ++ attrValues checked.roles)
            );
        in
        if !(modules ? ${factor}) then
          value
        else if names == [ ] then
          throwMatrixError "${factor} has no levels"
        else
          map checkLevel names;
      # If there is no factor workload, it gets all workloads of the benchmark, except null and gang, which nixbench adds.
      own = filter (w: w != "null" && w != "gang") (attrNames b.workloads);
      factors = {
        workload = if own == [ ] then [ "null" ] else own;
      }
      // mapAttrs levelsOf b.matrix;
      toText =
        level: if isBool level then (if level then "true" else "false") else toString level;
      combinations = foldl' (
        all: factor: lib.concatMap (cell: map (level: cell // { ${factor} = level; }) factors.${factor}) all
      ) [ { } ] (attrNames factors);
      cells = filter (c: !b.exclude c) combinations;
      unknown = filter (w: !(b.workloads ? ${w})) factors.workload;
      describeWorkload =
        w:
        removeAttrs w [ "kubernetes" ]
        // {
          trace = if w.trace == null then null else toString w.trace;
          program = map toString w.program;
          programInputs = builtins.concatMap (p: attrNames (builtins.getContext (toString p))) w.program;
          players = { inherit (w) kubernetes; };
        };
    in
    if unknown != [ ] then
      throwMatrixError "workload has ${head unknown}, and workloads has ${concatStringsSep ", " (attrNames b.workloads)}${suggestName (head unknown) "" (attrNames b.workloads)}"
    else if cells == [ ] then
      throwError "benchmarks.${name}: exclude leaves out every cell"
    else
      removeAttrs b [
        "matrix"
        "exclude"
      ]
      // {
        inherit modules;
        factors = mapAttrs (_: map toText) factors;
        cells = map (mapAttrs (_: toText)) cells;
        workloads = mapAttrs (_: describeWorkload) (lib.getAttrs factors.workload b.workloads);
      };
in
{
  benchmarks = mapAttrs (describeBenchmark (
    name: factor: if isAttrs benchmarks.${name}.matrix.${factor} then name else null
  )) benchmarks;

  # Return the evaluated benchmark that has this value. The benchmark is not in the hive.
  benchmarkOf =
    value:
    describeBenchmark (_: findModules) "adhoc"
      (evalBenchmarks "the command line" { adhoc = value; }).adhoc;

  # Return the modules of the levels [ { benchmark; factor; level; } ] for the nodes of a role.
  modulesOfLevels = levels: role: concatLists (map (levelModules role) levels);
}
