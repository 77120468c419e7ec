# Various functions: functions, booleans, errors, fixed points.
{ lib }:
rec {
  inherit (builtins)
    addErrorContext bitAnd bitOr bitXor deepSeq isBool isFloat isInt lessThan pathExists readFile
    seq trace
    ;

  # --- functions ---

  id = x: x;
  const = x: _: x;
  flip =
    f: a: b:
    f b a;
  pipe = lib.foldl' (value: f: f value);
  toFunction = v: if isFunction v then v else const v;

  # A function, or a set that can be called like one.
  isFunction = f: builtins.isFunction f || (f ? __functor && isFunction (f.__functor f));
  functionArgs =
    f:
    if builtins.isFunction f then
      builtins.functionArgs f
    else
      f.__functionArgs or (functionArgs (f.__functor f));
  setFunctionArgs = f: __functionArgs: { inherit __functionArgs; __functor = _: f; };

  # --- values ---

  min = a: b: if a < b then a else b;
  max = a: b: if a > b then a else b;
  mod = base: int: base - int * (base / int);
  add = a: b: a + b;
  sub = a: b: a - b;
  mergeAttrs = a: b: a // b;
  mapNullable = f: v: if v == null then null else f v;
  defaultTo = default: v: if v == null then default else v;
  boolToString = b: builtins.toJSON (b && true);
  boolToYesNo = b: if b then "yes" else "no";
  toHexString =
    n:
    let
      digit = builtins.substring (mod n 16) 1 "0123456789ABCDEF";
    in
    if n < 16 then digit else toHexString (n / 16) + digit;
  importJSON = file: builtins.fromJSON (readFile file);
  importTOML = file: builtins.fromTOML (readFile file);

  # --- errors, warnings, traces ---

  assertMsg = condition: message: condition || throw message;
  throwIf = condition: message: throwIfNot (!condition) message;
  throwIfNot = condition: message: if condition then id else throw message;
  # Newer Nix has builtins.warn; older must print the same line without it.
  warn =
    builtins.warn or (
      message:
      let
        escape = builtins.fromJSON ''"\u001b["'';
      in
      trace "${escape}1;35mevaluation warning:${escape}0m ${message}"
    );
  warnIf = condition: message: if condition then warn message else id;
  warnIfNot = condition: warnIf (!condition);
  showWarnings = warnings: value: lib.foldr warn value warnings;
  traceVal = x: trace x x;
  traceValSeq = x: deepSeq x (traceVal x);

  # --- this release ---

  release = "25.05";
  codeName = "Mini";
  versionSuffix = "pre-mini";
  version = release + versionSuffix;
  inPureEvalMode = !(builtins ? currentSystem);

  # --- fixed points ---

  fix =
    f:
    let
      self = f self;
    in
    self;
  extends =
    overlay: f: final:
    let
      prev = f final;
    in
    prev // overlay final prev;
  composeExtensions =
    first: second: final: prev:
    let
      changes = first final prev;
    in
    changes // second final (prev // changes);
  composeManyExtensions = lib.foldl' composeExtensions (_: _: { });
}
