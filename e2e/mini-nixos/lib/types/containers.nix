# Types around other types.
{ kit, lib }:
let
  inherit (builtins) head isAttrs length;
  inherit (kit) around asAlternative asElement mkOptionType phrase;
  inherit (lib) mergeDefinitions types;

  # Lazy in its values, for which `mkIf false` then cannot remove an attribute.
  attrsWith =
    name: title: values: elemType:
    around elemType [ "<name>" ] (attrsWith name title values) {
      inherit name;
      description = "${title} of ${asElement elemType}";
      descriptionClass = "composite";
      check = isAttrs;
      emptyValue.value = { };
      merge =
        loc: defs:
        values elemType (
          builtins.zipAttrsWith (n: mergeDefinitions (loc ++ [ n ]) elemType) (
            map (
              d:
              builtins.mapAttrs (_: value: { inherit (d) file; inherit value; }) d.value
            ) defs
          )
        );
    };
in
{
  listOf =
    elemType:
    around elemType [ "*" ] types.listOf {
      name = "listOf";
      description = "list of ${asElement elemType}";
      descriptionClass = "composite";
      check = builtins.isList;
      emptyValue.value = [ ];
      merge =
        loc: defs:
        let
          element =
            i: file: j: value:
            mergeDefinitions (loc ++ [ "[definition ${toString i}-entry ${toString j}]" ]) elemType [
              { inherit file value; }
            ];
          merged = lib.concatLists (lib.imap1 (i: d: lib.imap1 (element i d.file) d.value) defs);
        in
        builtins.catAttrs "value" (map (m: m.optionalValue) merged);
    };

  nonEmptyListOf =
    elemType:
    let
      list = kit.addCheck (types.listOf elemType) (l: l != [ ]);
    in
    list
    // {
      description = "non-empty ${phrase [ "noun" ] list}";
      emptyValue = { };
      substSubModules = modules: types.nonEmptyListOf (elemType.substSubModules modules);
    };

  attrs = mkOptionType {
    name = "attrs";
    description = "attribute set";
    check = isAttrs;
    emptyValue.value = { };
    merge = _: defs: lib.foldl' (all: d: all // d.value) { } defs;
  };

  attrsOf = attrsWith "attrsOf" "attribute set" (
    _: merged: builtins.mapAttrs (_: m: m.mergedValue) (lib.filterAttrs (_: m: m.isDefined) merged)
  );
  lazyAttrsOf = attrsWith "lazyAttrsOf" "lazy attribute set" (
    elemType:
    builtins.mapAttrs (_: m: m.optionalValue.value or elemType.emptyValue.value or m.mergedValue)
  );

  uniq = types.unique { message = ""; };
  unique =
    { message }:
    type:
    around type [ ] (types.unique { inherit message; }) {
      name = "unique";
      inherit (type) check description descriptionClass emptyValue;
      merge = lib.mergeUniqueOption { inherit message; inherit (type) merge; };
    };

  nullOr =
    elemType:
    around elemType [ ] types.nullOr {
      name = "nullOr";
      description = "null or ${asAlternative elemType}";
      descriptionClass = "conjunction";
      check = v: v == null || elemType.check v;
      emptyValue.value = null;
      merge =
        loc: defs:
        let
          split = lib.partition (d: d.value == null) defs;
        in
        if split.right == [ ] then
          elemType.merge loc defs
        else if split.wrong == [ ] then
          null
        else
          throw "The option `${lib.showOption loc}` is defined both null and not null, in ${lib.showFiles (lib.options.getFiles defs)}.";
    };

  functionTo =
    elemType:
    around elemType [ "<function body>" ] types.functionTo {
      name = "functionTo";
      description = "function that evaluates to a(n) ${asElement elemType}";
      descriptionClass = "composite";
      check = lib.isFunction;
      merge =
        loc: defs:
        lib.setFunctionArgs (
          argument:
          (mergeDefinitions (loc ++ [ "<function body>" ]) elemType (
            map (d: d // { value = d.value argument; }) defs
          )).mergedValue
        ) (lib.zipAttrsWith (_: lib.all lib.id) (map (d: lib.functionArgs d.value) defs));
    };

  either =
    a: b:
    mkOptionType {
      name = "either";
      description =
        if a.descriptionClass or null == "nonRestrictiveClause" then
          "${a.description}, or ${asAlternative b}"
        else
          "${asAlternative a} or ${phrase [ "noun" "conjunction" "composite" ] b}";
      descriptionClass = "conjunction";
      check = v: a.check v || b.check v;
      merge =
        loc: defs:
        let
          fitting = lib.findFirst (t: lib.all (d: t.check d.value) defs) { merge = lib.mergeOneOption; } [ a b ];
        in
        fitting.merge loc defs;
      nestedTypes = { left = a; right = b; };
      functor = {
        name = "either";
        payload = [ a b ];
        type = ts: types.either (head ts) (lib.last ts);
        binOp =
          f: g:
          let
            merged = lib.zipListsWith (x: y: x.typeMerge y.functor) f g;
          in
          if lib.elem null merged then null else merged;
      };
    };

  oneOf = ts: lib.foldl' types.either (head ts) (builtins.tail ts);

  coercedTo =
    from: coerce: to:
    let
      coerced = v: if from.check v then coerce v else v;
    in
    assert lib.assertMsg (
      from.getSubModules == null
    ) "coercedTo: cannot convert from ${from.description}, which has submodules";
    mkOptionType {
      name = "coercedTo";
      description = "${phrase [ "noun" ] to} or ${phrase [ "noun" ] from} convertible to it";
      check = v: (from.check v && to.check (coerce v)) || to.check v;
      merge = loc: defs: to.merge loc (map (d: d // { value = coerced d.value; }) defs);
      inherit (to) emptyValue getSubModules getSubOptions;
      substSubModules = modules: types.coercedTo from coerce (to.substSubModules modules);
      typeMerge = _: null;
    };
}
