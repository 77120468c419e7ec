# Configuration file formats, and values printed for people.
{ lib }:
rec {
  mkValueStringDefault =
    { }:
    v:
    if builtins.isString v || builtins.isInt v || lib.isDerivation v then
      toString v
    else if builtins.elem (builtins.typeOf v) [ "bool" "float" "null" ] then
      builtins.toJSON v
    else
      throw "A value of type ${builtins.typeOf v} has no place in this file format: ${toPretty { } v}";

  mkKeyValueDefault =
    {
      mkValueString ? mkValueStringDefault { },
    }:
    separator: key: v:
    lib.escape [ separator ] key + separator + mkValueString v;

  toKeyValue =
    {
      indent ? "",
      listsAsDuplicateKeys ? false,
      mkKeyValue ? mkKeyValueDefault { } "=",
    }:
    let
      line = key: v: "${indent}${mkKeyValue key v}\n";
      linesOf =
        key: v: if listsAsDuplicateKeys then map (line key) (lib.toList v) else [ (line key v) ];
    in
    set: lib.concatStrings (lib.concatLists (lib.mapAttrsToList linesOf set));

  toINI =
    {
      mkSectionName ? lib.escape [ "[" "]" ],
      ...
    }@args:
    let
      body = toKeyValue (removeAttrs args [ "mkSectionName" ]);
    in
    lib.concatMapAttrsStringSep "\n" (name: settings: "[${mkSectionName name}]\n${body settings}");

  toJSON = { }: builtins.toJSON;
  # JSON is YAML.
  toYAML = toJSON;

  # A value as Nix would write it.
  toPretty =
    {
      multiline ? true,
      indent ? "",
      allowPrettyValues ? false,
    }:
    print { inherit multiline; depth = 1000; } indent;

  # What lies deeper than `depth` is left out, and so not evaluated either.
  print =
    { multiline, depth }@args:
    indent: v:
    let
      deeper = indent + "  ";
      line = if multiline then "\n${deeper}" else " ";
      end = if multiline then "\n${indent}" else " ";
      inner = print { inherit multiline; depth = depth - 1; } deeper;
      within =
        open: close: parts:
        if parts == [ ] then
          "${open} ${close}"
        else
          open + line + lib.concatStringsSep line parts + end + close;

      text =
        let
          lines = lib.splitString "\n" v;
          raw = map (builtins.replaceStrings [ "\${" "''" ] [ "''\${" "'''" ]) lines;
          # The indentation of a last, empty line is the closing quotes'.
          closing = if lib.last lines == "" then end else line + lib.last raw;
        in
        if multiline && lib.length lines > 1 then
          "''${line}${lib.concatStringsSep line (lib.init raw)}${closing}''"
        else
          lib.strings.escapeNixString v;

      arguments = lib.concatMapAttrsStringSep ", " (n: optional: n + lib.optionalString optional "?") (
        lib.functionArgs v
      );

      byType = {
        string = text;
        path = toString v;
        int = toString v;
        list = within "[" "]" (map inner v);
        lambda = if arguments == "" then "<function>" else "<function, args: {${arguments}}>";
        set =
          if lib.isDerivation v then
            "<derivation ${v.name or "???"}>"
          else if lib.isFunction v then
            byType.lambda
          else
            within "{" "}" (
              lib.mapAttrsToList (n: x: "${lib.strings.escapeNixIdentifier n} = ${inner x};") v
            );
      };
    in
    if depth == 0 then "<unevaluated>" else byType.${builtins.typeOf v} or (builtins.toJSON v);
}
