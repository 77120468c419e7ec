# Functions about nothing in particular.
{ lib }:
let
  esc = builtins.fromJSON "\"\\u001b\"";

  # Newer Nix has builtins.warn; older must print the same line without it.
  warnFallback = msg: builtins.trace "${esc}[1;35mevaluation warning:${esc}[0m ${msg}";
in
rec {
  inherit (builtins)
    add
    bitAnd
    bitOr
    bitXor
    deepSeq
    genericClosure
    isBool
    isFloat
    isInt
    lessThan
    pathExists
    readFile
    seq
    sub
    ;

  # A function, or a set that can be called like one.
  isFunction = f: builtins.isFunction f || (f ? __functor && isFunction (f.__functor f));

  functionArgs =
    f:
    if f ? __functor then
      f.__functionArgs or (functionArgs (f.__functor f))
    else
      builtins.functionArgs f;

  setFunctionArgs = f: args: {
    __functor = _self: f;
    __functionArgs = args;
  };

  toFunction = v: if isFunction v then v else _: v;

  id = x: x;
  const = x: _: x;
  pipe = builtins.foldl' (value: f: f value);
  flip =
    f: a: b:
    f b a;
  min = a: b: if a < b then a else b;
  max = a: b: if a > b then a else b;
  mod = base: int: base - (int * (base / int));
  compare =
    a: b:
    if a < b then
      -1
    else if a > b then
      1
    else
      0;
  or = a: b: a || b;
  and = a: b: a && b;
  xor = a: b: a != b;
  concat = a: b: a ++ b;
  mergeAttrs = a: b: a // b;
  mapNullable = f: value: if value == null then value else f value;
  defaultTo = default: value: if value == null then default else value;

  boolToString = b: if b then "true" else "false";
  boolToYesNo = b: if b then "yes" else "no";

  importJSON = path: builtins.fromJSON (builtins.readFile path);
  importTOML = path: builtins.fromTOML (builtins.readFile path);

  warn = builtins.warn or warnFallback;
  warnIf = cond: msg: if cond then warn msg else id;
  warnIfNot = cond: msg: if cond then id else warn msg;
  throwIf = cond: msg: if cond then throw msg else id;
  throwIfNot = cond: msg: if cond then id else throw msg;
  info = msg: builtins.trace "INFO: ${msg}";
  showWarnings = warnings: value: builtins.foldl' (acc: w: warn w acc) value warnings;

  release = "25.05";
  versionSuffix = "pre-mini";
  version = release + versionSuffix;
  codeName = "Mini";
  oldestSupportedRelease = 2411;
  isInOldestRelease = oldestSupportedReleaseIsAtLeast;
  oldestSupportedReleaseIsAtLeast = release': release' <= oldestSupportedRelease;
  inNixShell = builtins.getEnv "IN_NIX_SHELL" != "";
  inPureEvalMode = !(builtins ? currentSystem);
  nixpkgsVersion = version;

  toHexString =
    i:
    let
      digits = "0123456789abcdef";
      digit = n: builtins.substring n 1 digits;
    in
    lib.concatMapStrings (n: lib.toUpper (digit n)) (toBaseDigits 16 i);

  toBaseDigits =
    base: i:
    let
      go = n: if n < base then [ n ] else go (n / base) ++ [ (mod n base) ];
    in
    assert builtins.isInt base && base >= 2;
    assert builtins.isInt i && i >= 0;
    go i;
}
