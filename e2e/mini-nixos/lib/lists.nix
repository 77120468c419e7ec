# Lists.
{ lib }:
let
  inherit (builtins)
    elem
    elemAt
    filter
    foldl'
    genList
    head
    length
    listToAttrs
    sort
    ;
in
rec {
  inherit (builtins)
    all
    any
    concatLists
    concatMap
    elem
    elemAt
    filter
    foldl'
    genList
    groupBy
    head
    isList
    length
    map
    partition
    sort
    tail
    ;

  singleton = x: [ x ];
  optional = cond: x: if cond then [ x ] else [ ];
  optionals = cond: xs: if cond then xs else [ ];
  toList = x: if builtins.isList x then x else [ x ];
  replicate = n: x: genList (_: x) n;
  range = first: last: if first > last then [ ] else genList (i: first + i) (last - first + 1);

  last =
    xs:
    assert lib.assertMsg (xs != [ ]) "lists.last: list must not be empty!";
    elemAt xs (length xs - 1);
  init =
    xs:
    assert lib.assertMsg (xs != [ ]) "lists.init: list must not be empty!";
    take (length xs - 1) xs;
  sublist =
    start: count: xs:
    let
      rest = lib.max 0 (length xs - start);
    in
    genList (i: elemAt xs (start + i)) (lib.min count rest);
  take = sublist 0;
  drop = n: xs: sublist n (length xs) xs;
  takeEnd = n: xs: drop (lib.max 0 (length xs - n)) xs;
  dropEnd = n: xs: take (lib.max 0 (length xs - n)) xs;
  reverseList =
    xs:
    let
      n = length xs;
    in
    genList (i: elemAt xs (n - 1 - i)) n;

  foldr =
    f: nul: xs:
    let
      n = length xs;
      go = i: if i == n then nul else f (elemAt xs i) (go (i + 1));
    in
    go 0;
  fold = foldr;
  foldl =
    f: nul: xs:
    let
      go = i: if i < 0 then nul else f (go (i - 1)) (elemAt xs i);
    in
    go (length xs - 1);

  imap0 = f: xs: genList (i: f i (elemAt xs i)) (length xs);
  imap1 = f: xs: genList (i: f (i + 1) (elemAt xs i)) (length xs);
  ifilter0 =
    pred: xs:
    map (i: elemAt xs i) (filter (i: pred i (elemAt xs i)) (genList lib.id (length xs)));
  forEach = xs: f: map f xs;
  flatten = x: if builtins.isList x then builtins.concatMap flatten x else [ x ];
  remove = x: filter (y: y != x);
  count = pred: foldl' (n: x: if pred x then n + 1 else n) 0;

  findSingle =
    pred: default: multiple: xs:
    let
      found = filter pred xs;
    in
    if found == [ ] then
      default
    else if length found == 1 then
      head found
    else
      multiple;
  findFirstIndex =
    pred: default: xs:
    let
      n = length xs;
      go =
        i:
        if i == n then
          default
        else if pred (elemAt xs i) then
          i
        else
          go (i + 1);
    in
    go 0;
  findFirst =
    pred: default: xs:
    let
      i = findFirstIndex pred null xs;
    in
    if i == null then default else elemAt xs i;

  zipListsWith =
    f: a: b:
    genList (i: f (elemAt a i) (elemAt b i)) (lib.min (length a) (length b));
  zipLists = zipListsWith (fst: snd: { inherit fst snd; });
  crossLists = f: foldl' (fs: args: builtins.concatMap (g: map g args) fs) [ f ];

  sortOn =
    f: xs:
    map (p: p.x) (
      sort (a: b: a.key < b.key) (
        map (x: {
          inherit x;
          key = f x;
        }) xs
      )
    );
  compareLists =
    cmp: a: b:
    if a == [ ] then
      (if b == [ ] then 0 else -1)
    else if b == [ ] then
      1
    else
      let
        rel = cmp (head a) (head b);
      in
      if rel == 0 then compareLists cmp (builtins.tail a) (builtins.tail b) else rel;

  unique =
    xs:
    # Strings, by far the most common case, need no quadratic search.
    if builtins.all builtins.isString xs then
      let
        # listToAttrs keeps the first of equal names: the index where each was first seen.
        firstIndex = listToAttrs (
          imap0 (i: x: {
            name = builtins.unsafeDiscardStringContext x;
            value = i;
          }) xs
        );
      in
      ifilter0 (i: x: firstIndex.${builtins.unsafeDiscardStringContext x} == i) xs
    else
      foldl' (acc: x: if elem x acc then acc else acc ++ [ x ]) [ ] xs;
  uniqueStrings = xs: builtins.attrNames (builtins.groupBy lib.id xs);
  allUnique = xs: length (unique xs) == length xs;
  intersectLists = xs: filter (x: elem x xs);
  subtractLists = xs: filter (x: !elem x xs);
  mutuallyExclusive = a: b: !builtins.any (x: elem x a) b;
  hasPrefix = prefix: xs: take (length prefix) xs == prefix;
  removePrefix =
    prefix: xs:
    if hasPrefix prefix xs then
      drop (length prefix) xs
    else
      throw "lib.lists.removePrefix: First argument is not a list prefix of the second argument";
  commonPrefix =
    a: b:
    let
      n = lib.min (length a) (length b);
      firstDifference = findFirst (i: elemAt a i != elemAt b i) n (range 0 (n - 1));
    in
    take firstDifference a;

  groupBy' =
    op: nul: pred: xs:
    builtins.mapAttrs (_: foldl' op nul) (builtins.groupBy pred xs);

  # Depth first; a cycle is reported, not followed.
  toposort =
    before: xs:
    let
      go =
        sorted: rest:
        if rest == [ ] then
          { result = sorted; }
        else
          let
            free = findFirst (x: !builtins.any (y: y != x && before y x) rest) null rest;
          in
          if free == null then
            {
              cycle = rest;
              loops = rest;
            }
          else
            go (sorted ++ [ free ]) (remove free rest);
    in
    go [ ] xs;

}
