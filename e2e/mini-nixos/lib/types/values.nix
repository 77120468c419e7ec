# Types of single values.
{ kit, lib }:
let
  inherit (builtins) isInt isString;
  inherit (kit) madeFrom noun restrict scalar;
  inherit (lib) types;
  inherit (lib.options) getFiles mergeEqualOption mergeOneOption;

  meaning =
    base: accept: name: description:
    restrict base accept name description // { descriptionClass = "nonRestrictiveClause"; };

  bounded =
    low: high: name: prefix:
    restrict types.int (
      v: low <= v && v <= high
    ) name "${prefix} between ${toString low} and ${toString high} (both inclusive)";
  unsigned = bits: highest: bounded 0 highest "unsignedInt${bits}" "${bits} bit unsigned integer;";
  signed = bits: half: bounded (0 - half) (half - 1) "signedInt${bits}" "${bits} bit signed integer;";

  # Below the store folder, and not just the folder or its ".links".
  isInStore =
    v:
    builtins.match "${builtins.storeDir}/[^./].*" (
      builtins.unsafeDiscardStringContext (toString v)
    ) != null;
  joinedWith =
    separator:
    noun "separatedString" "strings concatenated with ${builtins.toJSON separator}" {
      check = isString;
      merge = _: defs: lib.concatMapStringsSep separator (d: d.value) defs;
      functor = madeFrom "separatedString" joinedWith separator;
    };
in
{
  # --- anything goes ---

  raw = noun "raw" "raw value" {
    merge = mergeOneOption;
  };

  unspecified = noun "unspecified" "unspecified value" { };

  anything = noun "anything" "anything" {
    merge =
      loc: defs:
      let
        kindOf = v: if builtins.isAttrs v && lib.isStringLike v then "text" else builtins.typeOf v;
        kind = kindOf (builtins.head defs).value;
      in
      if !builtins.all (d: kindOf d.value == kind) defs then
        throw "The option `${lib.showOption loc}' has conflicting option types in ${lib.showFiles (getFiles defs)}"
      else if kind == "set" then
        (types.attrsOf types.anything).merge loc defs
      else if kind == "lambda" then
        argument:
        types.anything.merge (loc ++ [ "<function body>" ]) (
          map (d: d // { value = d.value argument; }) defs
        )
      else if kind == "text" then
        mergeOneOption loc defs
      else
        mergeEqualOption loc defs;
  };

  # --- numbers and booleans ---

  bool = scalar "bool" "boolean" builtins.isBool;
  int = scalar "int" "signed integer" isInt;
  float = scalar "float" "floating point number" builtins.isFloat;
  number = types.either types.int types.float;
  port = types.ints.u16;
  ints = {
    between = low: high: bounded low high "intBetween" "integer";
    unsigned = meaning types.int (v: v >= 0) "unsignedInt" "unsigned integer, meaning >=0";
    positive = meaning types.int (v: v > 0) "positiveInt" "positive integer, meaning >0";
    u8 = unsigned "8" 255;
    u16 = unsigned "16" 65535;
    u32 = unsigned "32" 4294967295;
    s8 = signed "8" 128;
    s16 = signed "16" 32768;
    s32 = signed "32" 2147483648;
  };

  # --- text ---

  str = scalar "str" "string" isString;
  nonEmptyStr = scalar "nonEmptyStr" "non-empty string" (
    v: isString v && builtins.match "[ \t\n]*" v == null
  );
  singleLineStr =
    scalar "singleLineStr" "(optionally newline-terminated) single-line string" (
      v: isString v && builtins.match "[^\n\r]*\n?" v != null
    )
    // { merge = loc: defs: lib.removeSuffix "\n" (mergeEqualOption loc defs); };
  strMatching =
    pattern:
    # The pattern is part of the name, by which types are compared.
    scalar "strMatching ${lib.strings.escapeNixString pattern}" "string matching the pattern ${pattern}" (
      v: isString v && builtins.match pattern v != null
    )
    // kit.mergedBy (madeFrom "strMatching" types.strMatching pattern);
  separatedString = joinedWith;
  lines = joinedWith "\n";
  commas = joinedWith ",";
  envVar = joinedWith ":";
  passwdEntry =
    type:
    meaning type (
      v: builtins.match "[^:\n]*" (toString v) != null
    ) "passwdEntry ${type.name}" "${kit.phrase [ "noun" ] type}, not containing newlines or colons";

  enum =
    values:
    let
      shown = map (
        v:
        if isString v then
          "\"${v}\""
        else if isInt v then
          toString v
        else if builtins.isBool v then
          lib.boolToString v
        else
          "<${builtins.typeOf v}>"
      ) values;
      several = builtins.length values > 1;
    in
    scalar "enum" (
      if several then
        "one of ${lib.concatStringsSep ", " shown}"
      else if values == [ ] then
        "impossible (empty enum)"
      else
        "value ${toString shown} (singular enum)"
    ) (v: builtins.elem v values)
    // { descriptionClass = if several then "conjunction" else "noun"; }
    // kit.mergedBy {
      name = "enum";
      payload = values;
      type = types.enum;
      binOp = a: b: lib.unique (a ++ b);
    };

  # --- paths and packages ---

  path = scalar "path" "absolute path" (v: lib.isStringLike v && lib.hasPrefix "/" (toString v));
  pathInStore = scalar "pathInStore" "path in the Nix store" (v: lib.isStringLike v && isInStore v);

  package = noun "package" "package" {
    check = v: lib.isDerivation v || lib.isStorePath v;
    merge = mergeOneOption;
  };
  shellPackage = types.package // { check = v: lib.isDerivation v && v ? shellPath; };
  pkgs = kit.addCheck types.raw (kit.isType "pkgs") // {
    name = "pkgs";
    description = "Nixpkgs package set";
  };

  # A type as a value, for `freeformType`.
  optionType = noun "optionType" "optionType" {
    check = kit.isOptionType;
    merge =
      loc: defs:
      lib.foldl' (
        merged: d:
        let
          both = merged.typeMerge d.value.functor;
        in
        if both == null then throw "The types given for `${lib.showOption loc}' cannot be merged." else both
      ) (builtins.head defs).value (builtins.tail defs);
  };
}
