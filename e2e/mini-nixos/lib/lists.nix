# Lists.
{ lib }:
let
  inherit (builtins) elem elemAt filter genList length;
in
rec {
  inherit (builtins)
    all any concatLists concatMap elem elemAt filter foldl' genList groupBy head isList length map
    partition sort tail
    ;

  # --- making lists ---

  singleton = x: [ x ];
  optional = cond: x: optionals cond [ x ];
  optionals = cond: xs: if cond then xs else [ ];
  toList = x: if isList x then x else [ x ];
  replicate = n: x: genList (_: x) n;
  range = first: last: genList (i: first + i) (lib.max 0 (last - first + 1));
  zipListsWith =
    f: a: b:
    imap0 (i: f (elemAt a i)) (take (length a) b);
  zipLists = zipListsWith (fst: snd: { inherit snd fst; });

  # --- parts of a list ---

  last =
    xs: if xs == [ ] then throw "an empty list has no last element" else elemAt xs (length xs - 1);
  init =
    xs: if xs == [ ] then throw "an empty list has no init" else take (length xs - 1) xs;
  sublist =
    start: count: xs:
    genList (i: elemAt xs (start + i)) (lib.max 0 (lib.min count (length xs - start)));
  take = sublist 0;
  drop = n: xs: sublist n (length xs) xs;
  remove = x: filter (y: y != x);
  findFirst =
    pred: default: xs:
    let
      from =
        i:
        if i == length xs then
          default
        else if pred (elemAt xs i) then
          elemAt xs i
        else
          from (i + 1);
    in
    from 0;

  # --- folds and maps ---

  foldr =
    op: nul: xs:
    let
      from = i: if i == length xs then nul else op (elemAt xs i) (from (i + 1));
    in
    from 0;
  foldl =
    op: nul: xs:
    foldr (x: acc: op acc x) nul (reverseList xs);
  imap0 = f: xs: genList (i: f i (elemAt xs i)) (length xs);
  imap1 = f: imap0 (i: f (i + 1));
  forEach = xs: f: map f xs;
  flatten = x: if isList x then concatMap flatten x else [ x ];
  count = pred: xs: length (filter pred xs);
  reverseList = xs: imap0 (i: _: elemAt xs (length xs - 1 - i)) xs;
  sortOn =
    key: xs:
    map (p: p.x) (
      sort (a: b: a.key < b.key) (
        map (x: { inherit x; key = key x; }) xs
      )
    );

  # --- lists as sets ---

  unique =
    xs:
    let
      # listToAttrs keeps the first of equal names: the index where each was first seen.
      first = builtins.listToAttrs (imap0 (i: x: lib.nameValuePair (nameOf x) i) xs);
      nameOf = builtins.unsafeDiscardStringContext;
      fresh = imap0 (i: x: optional (first.${nameOf x} == i) x) xs;
    in
    # Strings, by far the most common case, need no quadratic search.
    if all builtins.isString xs then
      concatLists fresh
    else
      builtins.foldl' (seen: x: seen ++ optional (!elem x seen) x) [ ] xs;
  allUnique = xs: length (unique xs) == length xs;
  intersectLists = xs: filter (x: elem x xs);
  subtractLists = xs: filter (x: !elem x xs);
  mutuallyExclusive = xs: ys: intersectLists xs ys == [ ];
}
