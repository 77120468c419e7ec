# Attribute sets, and packages, which are sets too.
{ lib }:
let
  inherit (builtins) attrNames isAttrs listToAttrs mapAttrs;
in
rec {
  inherit (builtins)
    attrNames attrValues catAttrs getAttr hasAttr intersectAttrs isAttrs listToAttrs mapAttrs
    removeAttrs zipAttrsWith
    ;

  nameValuePair = name: value: { inherit name value; };
  optionalAttrs = cond: set: if cond then set else { };

  # --- paths into sets ---

  attrByPath =
    path: default: set:
    let
      step =
        found: name:
        if found ? value && isAttrs found.value && found.value ? ${name} then
          { value = found.value.${name}; }
        else
          { };
    in
    (lib.foldl' step { value = set; } path).value or default;
  hasAttrByPath =
    path: set:
    let
      # Told apart from everything that a set may hold.
      nothing = { _type = "hasAttrByPath"; };
    in
    path == [ ] || (attrByPath (lib.init path) { } set).${lib.last path} or nothing != nothing;
  getAttrFromPath =
    path: attrByPath path (throw "there is no attribute ${lib.concatStringsSep "." path}");
  setAttrByPath = lib.flip (lib.foldr (name: value: { ${name} = value; }));

  # --- names and values ---

  attrVals = names: set: map (n: set.${n}) names;
  getAttrs = names: set: genAttrs names (n: set.${n});
  genAttrs = names: f: listToAttrs (map (n: nameValuePair n (f n)) names);
  filterAttrs = pred: set: removeAttrs set (lib.filter (n: !pred n set.${n}) (attrNames set));
  filterAttrsRecursive =
    pred: set:
    mapAttrs (_: v: if isAttrs v then filterAttrsRecursive pred v else v) (filterAttrs pred set);
  mapAttrs' = f: set: listToAttrs (mapAttrsToList f set);
  mapAttrsToList = f: set: map (n: f n set.${n}) (attrNames set);
  attrsToList = mapAttrsToList nameValuePair;
  concatMapAttrs = f: set: mergeAttrsList (mapAttrsToList f set);
  mapAttrsRecursive = mapAttrsRecursiveCond (_: true);
  mapAttrsRecursiveCond =
    descend: f:
    let
      below =
        path: n: v:
        let
          here = path ++ [ n ];
        in
        if isAttrs v && descend v then mapAttrs (below here) v else f here v;
    in
    mapAttrs (below [ ]);
  foldlAttrs =
    f: init: set:
    lib.foldl' (acc: n: f acc n set.${n}) init (attrNames set);
  collect =
    pred: v:
    if pred v then
      [ v ]
    else
      lib.optionals (isAttrs v) (lib.concatMap (collect pred) (builtins.attrValues v));

  # --- several sets ---

  mergeAttrsList =
    sets:
    let
      half = lib.length sets / 2;
    in
    # Halving keeps the copies small where `foldl' (//)` would be quadratic.
    if half == 0 then
      lib.foldl' lib.mergeAttrs { } sets
    else
      mergeAttrsList (lib.take half sets) // mergeAttrsList (lib.drop half sets);
  zipAttrs = builtins.zipAttrsWith (_: values: values);
  foldAttrs =
    op: nul: sets:
    mapAttrs (_: lib.foldr op nul) (zipAttrs sets);
  recursiveUpdate =
    old: new:
    old
    // mapAttrs (
      n: v: if isAttrs v && isAttrs (old.${n} or null) then recursiveUpdate old.${n} v else v
    ) new;
  overrideExisting = old: new: old // builtins.intersectAttrs old new;

  # --- packages ---

  isDerivation = v: v.type or null == "derivation";
  recurseIntoAttrs = set: set // { recurseForDerivations = true; };
  getOutput = output: p: if p.outputSpecified or false then p else p.${output} or p.out or p;
  getBin = getOutput "bin";
  getLib = getOutput "lib";

  # The program a package is for.
  getExe =
    p:
    getExe' p (
      p.meta.mainProgram
        or (lib.warn "${lib.getName p} has no meta.mainProgram; its own name is taken" (lib.getName p))
    );
  getExe' = p: program: "${getBin p}/bin/${program}";
}
