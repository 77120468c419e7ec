# Attribute sets.
{ lib }:
let
  inherit (builtins)
    attrNames
    concatMap
    foldl'
    hasAttr
    head
    isAttrs
    listToAttrs
    map
    mapAttrs
    tail
    ;
in
rec {
  inherit (builtins)
    attrNames
    attrValues
    catAttrs
    getAttr
    hasAttr
    intersectAttrs
    isAttrs
    listToAttrs
    mapAttrs
    removeAttrs
    zipAttrsWith
    ;

  nameValuePair = name: value: { inherit name value; };
  optionalAttrs = cond: set: if cond then set else { };

  attrByPath =
    path: default: set:
    if path == [ ] then
      set
    else if isAttrs set && set ? ${head path} then
      attrByPath (tail path) default set.${head path}
    else
      default;
  hasAttrByPath =
    path: set:
    path == [ ] || (isAttrs set && set ? ${head path} && hasAttrByPath (tail path) set.${head path});
  getAttrFromPath =
    path: attrByPath path (abort "cannot find attribute '${lib.concatStringsSep "." path}'");
  setAttrByPath =
    path: value: if path == [ ] then value else { ${head path} = setAttrByPath (tail path) value; };
  longestValidPathPrefix =
    path: set:
    if path == [ ] || !(isAttrs set && set ? ${head path}) then
      [ ]
    else
      [ (head path) ] ++ longestValidPathPrefix (tail path) set.${head path};
  attrVals = names: set: map (n: set.${n}) names;
  getAttrs = names: set: genAttrs names (n: set.${n});

  filterAttrs = pred: set: removeAttrs set (builtins.filter (n: !pred n set.${n}) (attrNames set));
  filterAttrsRecursive =
    pred: set:
    listToAttrs (
      concatMap (
        name:
        let
          value = set.${name};
        in
        lib.optional (pred name value) {
          inherit name;
          value = if isAttrs value then filterAttrsRecursive pred value else value;
        }
      ) (attrNames set)
    );

  mapAttrs' = f: set: listToAttrs (mapAttrsToList f set);
  mapAttrsToList = f: set: map (n: f n set.${n}) (attrNames set);
  attrsToList = mapAttrsToList nameValuePair;
  concatMapAttrs = f: set: mergeAttrsList (mapAttrsToList f set);
  mapAttrsRecursive = mapAttrsRecursiveCond (_: true);
  mapAttrsRecursiveCond =
    cond: f:
    let
      go =
        path:
        mapAttrs (
          n: v:
          if isAttrs v && cond v then go (path ++ [ n ]) v else f (path ++ [ n ]) v
        );
    in
    go [ ];
  mapAttrsToListRecursive = mapAttrsToListRecursiveCond (_path: _v: true);
  mapAttrsToListRecursiveCond =
    cond: f:
    let
      go =
        path: v:
        if isAttrs v && cond path v then
          concatMap (n: go (path ++ [ n ]) v.${n}) (attrNames v)
        else
          [ (f path v) ];
    in
    go [ ];

  genAttrs = names: f: listToAttrs (map (n: nameValuePair n (f n)) names);
  genAttrs' = xs: f: listToAttrs (map f xs);
  foldlAttrs =
    f: init: set:
    foldl' (acc: n: f acc n set.${n}) init (attrNames set);
  foldAttrs =
    op: nul: sets:
    mapAttrs (_: lib.foldr op nul) (zipAttrs sets);
  mergeAttrsList =
    sets:
    # Halving keeps the copies small where `foldl' (//)` would be quadratic.
    let
      go =
        start: end:
        if end - start >= 2 then
          let
            middle = (start + end) / 2;
          in
          go start middle // go middle end
        else
          builtins.elemAt sets start;
    in
    if sets == [ ] then { } else go 0 (builtins.length sets);

  collect =
    pred: v:
    if pred v then
      [ v ]
    else if isAttrs v then
      concatMap (collect pred) (builtins.attrValues v)
    else
      [ ];
  cartesianProduct =
    sets:
    foldl' (
      acc: name: concatMap (partial: map (value: partial // { ${name} = value; }) sets.${name}) acc
    ) [ { } ] (attrNames sets);
  mapCartesianProduct = f: sets: map f (cartesianProduct sets);

  zipAttrs = builtins.zipAttrsWith (_: values: values);
  zipAttrsWithNames =
    names: f: sets:
    genAttrs names (n: f n (builtins.catAttrs n sets));

  recursiveUpdateUntil =
    stop: lhs: rhs:
    let
      go =
        path:
        builtins.zipAttrsWith (
          n: values:
          let
            here = path ++ [ n ];
          in
          if
            builtins.length values == 1 || stop here (builtins.elemAt values 1) (head values)
          then
            head values
          else
            go here values
        );
    in
    go [ ] [
      rhs
      lhs
    ];
  recursiveUpdate =
    lhs: rhs:
    recursiveUpdateUntil (
      _path: l: r:
      !(isAttrs l && isAttrs r)
    ) lhs rhs;
  matchAttrs =
    pattern: attrs:
    builtins.all (
      n:
      hasAttr n attrs
      && (
        if isAttrs pattern.${n} then
          isAttrs attrs.${n} && matchAttrs pattern.${n} attrs.${n}
        else
          pattern.${n} == attrs.${n}
      )
    ) (attrNames pattern);

  unionOfDisjoint =
    a: b:
    let
      both = builtins.intersectAttrs a b;
      mask = mapAttrs (
        n: _: throw "unionOfDisjoint: collision on ${n}; complete list: ${toString (attrNames both)}"
      ) both;
    in
    a // b // mask;

  overrideExisting = old: new: mapAttrs (n: v: new.${n} or v) old;
  showAttrPath =
    path:
    if path == [ ] then
      "<root attribute path>"
    else
      lib.concatMapStringsSep "." lib.strings.escapeNixIdentifier path;

  isDerivation = v: v.type or null == "derivation";
  toDerivation =
    path:
    let
      stored = builtins.storePath path;
    in
    {
      type = "derivation";
      name = builtins.unsafeDiscardStringContext (builtins.substring 33 (-1) (baseNameOf stored));
      outPath = stored;
      outputs = [ "out" ];
      out = toDerivation path;
      outputName = "out";
    };
  recurseIntoAttrs = set: set // { recurseForDerivations = true; };
  dontRecurseIntoAttrs = set: set // { recurseForDerivations = false; };

  getOutput =
    output: pkg:
    if pkg.outputSpecified or false then pkg else pkg.${output} or pkg.out or pkg;
  getFirstOutput =
    candidates: pkg:
    let
      present = builtins.filter (o: hasAttr o pkg) candidates;
    in
    if pkg.outputSpecified or false || present == [ ] then pkg else pkg.${head present};
  getBin = getOutput "bin";
  getLib = getOutput "lib";
  getDev = getOutput "dev";
  getMan = getOutput "man";
  chooseDevOutputs = map getDev;
}
