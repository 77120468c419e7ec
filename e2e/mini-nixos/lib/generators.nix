# Configuration file formats, and values printed for people.
{ lib }:
rec {
  mkValueStringDefault =
    { }:
    v:
    let
      unsupported = what: abort "generators.mkValueStringDefault: ${what} not supported: ${toPretty { } v}";
    in
    if builtins.isInt v || lib.isDerivation v then
      toString v
    else if builtins.isString v then
      v
    else if builtins.isBool v then
      lib.boolToString v
    else if v == null then
      "null"
    else if builtins.isFloat v then
      lib.floatToString v
    else if builtins.isList v then
      unsupported "lists"
    else if builtins.isAttrs v then
      unsupported "attrsets"
    else if lib.isFunction v then
      unsupported "functions"
    else
      unsupported "this value is";

  mkKeyValueDefault =
    {
      mkValueString ? mkValueStringDefault { },
    }:
    sep: k: v:
    "${lib.escape [ sep ] k}${sep}${mkValueString v}";

  toKeyValue =
    {
      mkKeyValue ? mkKeyValueDefault { } "=",
      listsAsDuplicateKeys ? false,
      indent ? "",
    }:
    attrs:
    let
      valuesOf = v: if listsAsDuplicateKeys then lib.toList v else [ v ];
    in
    lib.concatStrings (
      lib.concatLists (
        lib.mapAttrsToList (k: v: map (x: indent + mkKeyValue k x + "\n") (valuesOf v)) attrs
      )
    );

  toINI =
    {
      mkSectionName ? (
        lib.escape [
          "["
          "]"
        ]
      ),
      mkKeyValue ? mkKeyValueDefault { } "=",
      listsAsDuplicateKeys ? false,
    }:
    sections:
    lib.concatStringsSep "\n" (
      lib.mapAttrsToList (
        name: values:
        "[${mkSectionName name}]\n" + toKeyValue { inherit mkKeyValue listsAsDuplicateKeys; } values
      ) sections
    );

  toINIWithGlobalSection =
    options:
    {
      globalSection,
      sections ? { },
    }:
    lib.optionalString (globalSection != { }) (
      toKeyValue (removeAttrs options [ "mkSectionName" ]) globalSection + "\n"
    )
    + toINI options sections;

  toJSON = { }: builtins.toJSON;

  # JSON is YAML.
  toYAML = toJSON;

  withRecursion =
    {
      depthLimit,
      throwOnDepthLimit ? true,
    }:
    let
      special = [
        "__functor"
        "__functionArgs"
        "__toString"
        "__pretty"
      ];
      cut =
        depth: v:
        if depthLimit == null || depth <= depthLimit then
          v
        else if throwOnDepthLimit then
          throw "Exceeded maximum eval-depth limit of ${toString depthLimit} while trying to evaluate with `generators.withRecursion'!"
        else
          "<unevaluated>";
      go =
        depth: v:
        let
          next = x: go (depth + 1) (cut (depth + 1) x);
        in
        if builtins.isAttrs v then
          builtins.mapAttrs (n: x: if builtins.elem n special then x else next x) v
        else if builtins.isList v then
          map next v
        else
          cut (depth + 1) v;
    in
    go 0;

  toPretty =
    {
      allowPrettyValues ? false,
      multiline ? true,
      indent ? "",
    }:
    let
      showString =
        open: close: s:
        let
          lines = lib.splitString "\n" s;
          long =
            let
              escaped = map (
                builtins.replaceStrings
                  [
                    "\${"
                    "''"
                  ]
                  [
                    "''\${"
                    "'''"
                  ]
              ) lines;
              end = lib.last escaped;
            in
            "''"
            + open
            + lib.concatStringsSep open (lib.init escaped)
            + (if end == "" then close else open + end)
            + "''";
          short =
            "\""
            + lib.concatMapStringsSep "\\n" (lib.escape [
              "\\"
              "\""
              "\${"
            ]) lines
            + "\"";
        in
        if multiline && builtins.length lines > 1 then long else short;

      showFunction =
        f:
        let
          args = lib.functionArgs f;
          shown = lib.concatStringsSep ", " (
            lib.mapAttrsToList (n: hasDefault: if hasDefault then n + "?" else n) args
          );
        in
        if args == { } then "<function>" else "<function, args: {${shown}}>";

      go =
        indent: v:
        let
          open = if multiline then "\n${indent}  " else " ";
          close = if multiline then "\n${indent}" else " ";
          inner = go (indent + "  ");
        in
        if builtins.isFloat v then
          builtins.toJSON v
        else if builtins.isInt v || builtins.isPath v then
          toString v
        else if builtins.isString v then
          showString open close v
        else if builtins.isBool v then
          lib.boolToString v
        else if v == null then
          "null"
        else if builtins.isList v then
          if v == [ ] then "[ ]" else "[" + open + lib.concatMapStringsSep open inner v + close + "]"
        else if lib.isFunction v then
          showFunction v
        else if builtins.isAttrs v then
          if allowPrettyValues && v ? __pretty && v ? val then
            v.__pretty v.val
          else if v == { } then
            "{ }"
          else if lib.isDerivation v then
            "<derivation ${v.name or "???"}>"
          else
            "{"
            + open
            + lib.concatStringsSep open (
              lib.mapAttrsToList (
                n: x:
                "${lib.strings.escapeNixIdentifier n} = ${
                  builtins.addErrorContext "while evaluating an attribute `${n}`" (inner x)
                };"
              ) v
            )
            + close
            + "}"
        else
          abort "generators.toPretty: should never happen (v = ${v})";
    in
    go indent;
}
