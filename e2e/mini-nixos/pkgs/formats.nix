# pkgs.formats: for each file format the type of its settings and how to write them.
final: _prev:
let
  inherit (final) lib;
  inherit (lib) types;

  valueType =
    name: nullable: scalars:
    let
      plain = types.oneOf (
        scalars
        ++ [ (types.attrsOf value) (types.listOf value) ]
      );
      value = (if nullable then types.nullOr plain else plain) // {
        description = "${name} value";
      };
    in
    value;

  jsonScalars = [ types.bool types.int types.float types.str types.path ];

  json =
    name:
    { }:
    {
      type = valueType name true jsonScalars;
      generate = file: value: final.writeText file (builtins.toJSON value + "\n");
    };

  # Only what TOML can say: tables become sections, tables in lists stay inline.
  tomlText =
    let
      key = k: if builtins.match "[A-Za-z0-9_-]+" k != null then k else builtins.toJSON k;
      value =
        v:
        if builtins.isList v then
          "[${lib.concatMapStringsSep ", " value v}]"
        else if lib.isDerivation v || builtins.isPath v then
          builtins.toJSON "${v}"
        else if builtins.isAttrs v then
          "{ ${lib.concatStringsSep ", " (lib.mapAttrsToList (k: x: "${key k} = ${value x}") v)} }"
        else
          builtins.toJSON v;
      isTable = v: builtins.isAttrs v && !lib.isDerivation v;
      table =
        path: set:
        let
          tables = lib.filterAttrs (_: isTable) set;
          plain = builtins.removeAttrs set (builtins.attrNames tables);
        in
        # A header is needed where lines of the table's own follow, or nothing at all.
        lib.optional (path != [ ] && (plain != { } || tables == { })) (
          "[${lib.concatMapStringsSep "." key path}]\n"
          + lib.concatStrings (lib.mapAttrsToList (k: v: "${key k} = ${value v}\n") plain)
        )
        ++ lib.optional (path == [ ] && plain != { }) (
          lib.concatStrings (lib.mapAttrsToList (k: v: "${key k} = ${value v}\n") plain)
        )
        ++ lib.concatLists (lib.mapAttrsToList (k: table (path ++ [ k ])) tables);
    in
    set: lib.concatStringsSep "\n" (table [ ] set);

  atom = types.nullOr (
    types.oneOf [ types.bool types.int types.float types.str ]
  );
  # Formats of lines. A list is the same key several times, where that is said.
  lined =
    typeOf: generator:
    {
      listsAsDuplicateKeys ? false,
      ...
    }@args:
    {
      type = typeOf (
        if listsAsDuplicateKeys then types.coercedTo atom lib.singleton (types.listOf atom) else atom
      );
      generate = file: value: final.writeText file (generator args value);
    };
in
{
  formats = {
    json = json "JSON";
    yaml = json "YAML 1.1";
    yaml_1_2 = json "YAML 1.2";

    toml =
      { }:
      {
        type = valueType "TOML" false jsonScalars;
        generate = file: value: final.writeText file (tomlText value);
      };

    ini = lined (type: types.attrsOf (types.attrsOf type)) lib.generators.toINI;
    keyValue = lined types.attrsOf lib.generators.toKeyValue;
  };
}
