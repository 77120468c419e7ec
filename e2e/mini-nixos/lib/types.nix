# Option types: what a definition may be, and how several become one value.
{ lib }:
let
  inherit (builtins)
    all
    attrNames
    filter
    foldl'
    head
    isAttrs
    isString
    length
    mapAttrs
    ;
  inherit (lib.options)
    getFiles
    getValues
    mergeEqualOption
    mergeOneOption
    mergeUniqueOption
    showFiles
    showOption
    ;
  inherit (lib.strings) isStringLike;

  # The description of a type inside that of another, in parentheses where the
  # sentence would otherwise be ambiguous.
  phrase =
    classes: t:
    if builtins.elem (t.descriptionClass or null) classes then t.description else "(${t.description})";
  phraseOf = phrase [
    "noun"
    "composite"
  ];
  phraseOr = phrase [
    "noun"
    "conjunction"
  ];

  isType = name: v: v._type or "" == name;
  setType = name: v: v // { _type = name; };

  defaultFunctor = name: {
    inherit name;
    type = types.${name} or null;
    payload = null;
    binOp = _a: _b: null;
  };

  defaultTypeMerge =
    f: g:
    if f.name != g.name then
      null
    else if f.payload == null then
      f.type
    else
      let
        payload = f.binOp f.payload g.payload;
      in
      if payload == null then null else f.type payload;

  # Two types over one element type merge when their element types do.
  elemFunctor =
    name: elemType:
    defaultFunctor name
    // {
      payload = { inherit elemType; };
      type = payload: types.${name} payload.elemType;
      binOp =
        a: b:
        let
          merged = a.elemType.typeMerge b.elemType.functor;
        in
        if merged == null then null else { elemType = merged; };
    };

  # What a type over `elemType` hands on to it.
  wrapping =
    elemType:
    {
      part ? [ ],
      rebuild,
    }:
    {
      getSubOptions = prefix: elemType.getSubOptions (prefix ++ part);
      inherit (elemType) getSubModules;
      substSubModules = m: rebuild (elemType.substSubModules m);
      nestedTypes = { inherit elemType; };
    };

  mkOptionType =
    {
      name,
      description ? null,
      descriptionClass ? null,
      check ? (_: true),
      merge ? lib.options.mergeDefaultOption,
      emptyValue ? { },
      getSubOptions ? (_prefix: { }),
      getSubModules ? null,
      substSubModules ? (_m: null),
      functor ? defaultFunctor name,
      typeMerge ? defaultTypeMerge functor,
      deprecationMessage ? null,
      nestedTypes ? { },
    }:
    {
      _type = "option-type";
      description = if description == null then name else description;
      inherit
        check
        deprecationMessage
        descriptionClass
        emptyValue
        functor
        getSubModules
        getSubOptions
        merge
        name
        nestedTypes
        substSubModules
        typeMerge
        ;
    };

  # A value that is one thing: several definitions must agree.
  scalar =
    name: description: check:
    mkOptionType {
      inherit name description check;
      descriptionClass = "noun";
      merge = mergeEqualOption;
    };

  restrict =
    base: accept: name: description:
    addCheck base accept // { inherit name description; };
  restrictTo =
    base: accept: name: description:
    restrict base accept name description // { descriptionClass = "nonRestrictiveClause"; };
  addCheck = type: accept: type // { check = v: type.check v && accept v; };

  inRange =
    low: high: v:
    v >= low && v <= high;
  rangeText = low: high: "${toString low} and ${toString high} (both inclusive)";
  sized =
    name: text: low: high:
    restrict types.int (inRange low high) name "${text}; between ${rangeText low high}";
  unsignedBits =
    bits: sup: sized "unsignedInt${toString bits}" "${toString bits} bit unsigned integer" 0 (sup - 1);
  signedBits =
    bits: sup:
    sized "signedInt${toString bits}" "${toString bits} bit signed integer" (0 - sup / 2) (sup / 2 - 1);

  isInStore =
    v:
    let
      s = builtins.unsafeDiscardStringContext (toString v);
      dir = "${builtins.storeDir}/";
    in
    lib.hasPrefix dir s && builtins.match "\\.+" (lib.removePrefix dir s) == null && s != dir;

  types = {
    inherit
      addCheck
      defaultFunctor
      defaultTypeMerge
      isType
      mkOptionType
      setType
      ;
    isOptionType = isType "option-type";
    optionDescriptionPhrase =
      accept: t: if accept (t.descriptionClass or null) then t.description else "(${t.description})";

    # --- anything goes ---

    raw = mkOptionType {
      name = "raw";
      description = "raw value";
      descriptionClass = "noun";
      merge = mergeOneOption;
    };

    unspecified = mkOptionType {
      name = "unspecified";
      description = "unspecified value";
      descriptionClass = "noun";
    };

    anything = mkOptionType {
      name = "anything";
      description = "anything";
      descriptionClass = "noun";
      merge =
        loc: defs:
        let
          kindOf = v: if isAttrs v && isStringLike v then "stringLikeSet" else builtins.typeOf v;
          kind = kindOf (head defs).value;
          merge =
            {
              set = (types.attrsOf types.anything).merge;
              stringLikeSet = mergeOneOption;
              lambda =
                loc: defs: arg:
                types.anything.merge (loc ++ [ "<function body>" ]) (
                  map (d: d // { value = d.value arg; }) defs
                );
            }
            .${kind} or mergeEqualOption;
        in
        if all (d: kindOf d.value == kind) defs then
          merge loc defs
        else
          throw "The option `${showOption loc}' has conflicting option types in ${showFiles (getFiles defs)}";
    };

    # --- scalars ---

    bool = scalar "bool" "boolean" builtins.isBool;
    boolByOr = scalar "boolByOr" "boolean (merged using or)" builtins.isBool // {
      merge = _loc: defs: builtins.any (d: d.value) defs;
    };
    int = scalar "int" "signed integer" builtins.isInt;
    float = scalar "float" "floating point number" builtins.isFloat;
    str = scalar "str" "string" isString;
    number = types.either types.int types.float;

    ints = {
      between =
        low: high:
        assert lib.assertMsg (low <= high) "ints.between: lowest must be smaller than highest";
        restrict types.int (inRange low high) "intBetween" "integer between ${rangeText low high}";
      unsigned = restrictTo types.int (v: v >= 0) "unsignedInt" "unsigned integer, meaning >=0";
      positive = restrictTo types.int (v: v > 0) "positiveInt" "positive integer, meaning >0";
      u8 = unsignedBits 8 256;
      u16 = unsignedBits 16 65536;
      u32 = unsignedBits 32 4294967296;
      s8 = signedBits 8 256;
      s16 = signedBits 16 65536;
      s32 = signedBits 32 4294967296;
    };
    port = types.ints.u16;
    numbers = {
      between =
        low: high:
        assert lib.assertMsg (low <= high) "numbers.between: lowest must be smaller than highest";
        restrict types.number (inRange low high) "numberBetween"
          "integer or floating point number between ${builtins.toJSON low} and ${builtins.toJSON high} (both inclusive)";
      nonnegative =
        restrictTo types.number (v: v >= 0) "numberNonnegative"
          "nonnegative integer or floating point number, meaning >=0";
      positive =
        restrictTo types.number (v: v > 0) "numberPositive"
          "positive integer or floating point number, meaning >0";
    };

    nonEmptyStr = scalar "nonEmptyStr" "non-empty string" (
      v: isString v && builtins.match "[ \t\n]*" v == null
    );
    singleLineStr =
      scalar "singleLineStr" "(optionally newline-terminated) single-line string" (
        v: isString v && builtins.match "[^\n\r]*\n?" v != null
      )
      // {
        merge = loc: defs: lib.removeSuffix "\n" (mergeEqualOption loc defs);
      };
    strMatching =
      pattern:
      mkOptionType {
        name = "strMatching ${lib.strings.escapeNixString pattern}";
        description = "string matching the pattern ${pattern}";
        descriptionClass = "noun";
        check = v: isString v && builtins.match pattern v != null;
        merge = mergeEqualOption;
        functor = defaultFunctor "strMatching" // {
          payload = { inherit pattern; };
          type = payload: types.strMatching payload.pattern;
          binOp = a: b: if a == b then a else null;
        };
      };
    separatedString =
      sep:
      mkOptionType {
        name = "separatedString";
        description = "strings concatenated with ${builtins.toJSON sep}";
        descriptionClass = "noun";
        check = isString;
        merge = _loc: defs: lib.concatStringsSep sep (getValues defs);
        functor = defaultFunctor "separatedString" // {
          payload = { inherit sep; };
          type = payload: types.separatedString payload.sep;
          binOp = a: b: if a == b then a else null;
        };
      };
    lines = types.separatedString "\n";
    commas = types.separatedString ",";
    envVar = types.separatedString ":";
    passwdEntry =
      type:
      restrictTo type (
        s: !(lib.hasInfix ":" s || lib.hasInfix "\n" s)
      ) "passwdEntry ${type.name}" "${phrase [ "noun" ] type}, not containing newlines or colons";

    enum =
      values:
      let
        show =
          v:
          if isString v then
            "\"${v}\""
          else if builtins.isInt v then
            toString v
          else if builtins.isBool v then
            lib.boolToString v
          else
            "<${builtins.typeOf v}>";
        n = length values;
      in
      mkOptionType {
        name = "enum";
        description =
          if n == 0 then
            "impossible (empty enum)"
          else if n == 1 then
            "value ${show (head values)} (singular enum)"
          else
            "one of ${lib.concatMapStringsSep ", " show values}";
        descriptionClass = if n < 2 then "noun" else "conjunction";
        check = v: builtins.elem v values;
        merge = mergeEqualOption;
        functor = defaultFunctor "enum" // {
          payload = { inherit values; };
          type = payload: types.enum payload.values;
          binOp = a: b: { values = lib.unique (a.values ++ b.values); };
        };
      };

    # --- paths and packages ---

    pathWith =
      {
        inStore ? null,
        absolute ? null,
      }:
      mkOptionType {
        name = "path";
        description =
          lib.optionalString (absolute != null) (if absolute then "absolute " else "relative ")
          + "path"
          + lib.optionalString (inStore != null) (
            if inStore then " in the Nix store" else " not in the Nix store"
          );
        descriptionClass = "noun";
        merge = mergeEqualOption;
        check =
          v:
          # A path outside the store must stay a string: a path value would be copied into it.
          (if inStore == false then isString v else isStringLike v)
          && (inStore == null || inStore == isInStore v)
          && (absolute == null || absolute == lib.hasPrefix "/" (toString v));
        functor = defaultFunctor "path" // {
          payload = { inherit inStore absolute; };
          type = types.pathWith;
          binOp = a: b: if a == b then a else null;
        };
      };
    path = types.pathWith { absolute = true; };
    pathInStore = types.pathWith { inStore = true; };
    externalPath = types.pathWith {
      absolute = true;
      inStore = false;
    };

    package = mkOptionType {
      name = "package";
      descriptionClass = "noun";
      check = v: lib.isDerivation v || lib.strings.isStorePath v;
      merge =
        loc: defs:
        let
          v = mergeOneOption loc defs;
          # A bare store path would lose its contents to garbage collection.
          bare = builtins.isPath v || (isString v && !builtins.hasContext v);
        in
        if bare then lib.toDerivation v else v;
    };
    shellPackage = types.package // {
      check = v: lib.isDerivation v && v ? shellPath;
    };
    pkgs =
      addCheck (
        types.unique { message = "A Nixpkgs pkgs set can not be merged with another pkgs set."; }
          types.attrs
        // {
          name = "pkgs";
          descriptionClass = "noun";
          description = "Nixpkgs package set";
        }
      ) (isType "pkgs");

    # --- collections ---

    listOf =
      elemType:
      mkOptionType (
        wrapping elemType {
          part = [ "*" ];
          rebuild = types.listOf;
        }
        // {
          name = "listOf";
          description = "list of ${phraseOf elemType}";
          descriptionClass = "composite";
          check = builtins.isList;
          merge =
            loc: defs:
            let
              element =
                i: def: j: value:
                (lib.mergeDefinitions
                  (loc ++ [ "[definition ${toString i}-entry ${toString j}]" ])
                  elemType
                  [
                    {
                      inherit (def) file;
                      inherit value;
                    }
                  ]
                ).optionalValue;
            in
            builtins.catAttrs "value" (
              lib.concatLists (lib.imap1 (i: def: lib.imap1 (element i def) def.value) defs)
            );
          emptyValue.value = [ ];
          functor = elemFunctor "listOf" elemType;
        }
      );

    nonEmptyListOf =
      elemType:
      let
        list = addCheck (types.listOf elemType) (l: l != [ ]);
      in
      list
      // {
        description = "non-empty ${phrase [ "noun" ] list}";
        emptyValue = { };
        substSubModules = m: types.nonEmptyListOf (elemType.substSubModules m);
      };

    attrs = mkOptionType {
      name = "attrs";
      description = "attribute set";
      check = isAttrs;
      merge = _loc: foldl' (acc: d: acc // d.value) { };
      emptyValue.value = { };
    };

    attrsOf = elemType: types.attrsWith { inherit elemType; };
    # Lazy in its values, for which `mkIf false` no longer removes an attribute.
    lazyAttrsOf =
      elemType:
      types.attrsWith {
        inherit elemType;
        lazy = true;
      };
    attrsWith =
      {
        elemType,
        lazy ? false,
        placeholder ? "name",
      }:
      mkOptionType (
        wrapping elemType {
          part = [ "<${placeholder}>" ];
          rebuild =
            elemType:
            types.attrsWith {
              inherit elemType lazy placeholder;
            };
        }
        // {
          name = if lazy then "lazyAttrsOf" else "attrsOf";
          description =
            (if lazy then "lazy attribute set" else "attribute set") + " of ${phraseOf elemType}";
          descriptionClass = "composite";
          check = isAttrs;
          merge =
            loc: defs:
            let
              merged =
                builtins.zipAttrsWith (name: lib.mergeDefinitions (loc ++ [ name ]) elemType)
                  (
                    map (
                      d:
                      mapAttrs (_: value: {
                        inherit (d) file;
                        inherit value;
                      }) d.value
                    ) defs
                  );
            in
            if lazy then
              mapAttrs (_: m: m.optionalValue.value or elemType.emptyValue.value or m.mergedValue) merged
            else
              mapAttrs (_: m: m.mergedValue) (lib.filterAttrs (_: m: m.isDefined) merged);
          emptyValue.value = { };
          functor = elemFunctor "attrsWith" elemType // {
            payload = { inherit elemType lazy placeholder; };
            type = types.attrsWith;
            binOp =
              a: b:
              let
                elemType = a.elemType.typeMerge b.elemType.functor;
                named = filter (p: p != "name") [
                  a.placeholder
                  b.placeholder
                ];
                placeholders = lib.unique named;
              in
              if elemType == null || a.lazy != b.lazy || length placeholders > 1 then
                null
              else
                {
                  inherit elemType;
                  inherit (a) lazy;
                  placeholder = if named == [ ] then "name" else head named;
                };
          };
        }
      );

    attrTag =
      tags:
      let
        choices = lib.concatMapStringsSep ", " lib.strings.escapeNixIdentifier (attrNames tags);
        declared = mapAttrs (
          name: opt:
          lib.throwIf (opt._type or null != "option")
            "In attrTag, each tag value must be an option, but tag ${lib.strings.escapeNixIdentifier name} ${
              if opt._type or null == "option-type" then
                "was a bare type, not wrapped in mkOption."
              else
                "was not."
            }"
            (
              {
                declarations = [ ];
                declarationPositions = [ ];
              }
              // opt
            )
        ) tags;
      in
      mkOptionType {
        name = "attrTag";
        description = "attribute-tagged union with choices: ${choices}";
        descriptionClass = "noun";
        getSubOptions = prefix: mapAttrs (n: opt: opt // { loc = prefix ++ [ n ]; }) declared;
        check = v: isAttrs v && length (attrNames v) == 1 && tags ? ${head (attrNames v)};
        merge =
          loc: defs:
          let
            tagOf = d: head (attrNames d.value);
            tag = tagOf (head defs);
            others = filter (d: tagOf d != tag) defs;
          in
          if others != [ ] then
            throw "The option `${showOption loc}` is defined both as `${tag}` and `${tagOf (head others)}`, in ${showFiles (getFiles defs)}."
          else
            {
              ${tag} =
                (lib.modules.evalOptionValue (loc ++ [ tag ]) declared.${tag} (
                  map (d: d // { value = d.value.${tag}; }) defs
                )).value;
            };
        nestedTypes = declared;
      };

    # --- combinations ---

    uniq = types.unique { message = ""; };
    unique =
      { message }:
      type:
      mkOptionType (
        wrapping type { rebuild = types.unique { inherit message; }; }
        // {
          name = "unique";
          inherit (type)
            check
            description
            descriptionClass
            emptyValue
            ;
          merge = mergeUniqueOption {
            inherit message;
            inherit (type) merge;
          };
          functor = elemFunctor "unique" type // {
            type = payload: types.unique { inherit message; } payload.elemType;
          };
        }
      );

    nullOr =
      elemType:
      mkOptionType (
        wrapping elemType { rebuild = types.nullOr; }
        // {
          name = "nullOr";
          description = "null or ${phraseOr elemType}";
          descriptionClass = "conjunction";
          check = v: v == null || elemType.check v;
          merge =
            loc: defs:
            let
              nulls = length (filter (d: d.value == null) defs);
            in
            if nulls == 0 then
              elemType.merge loc defs
            else if nulls == length defs then
              null
            else
              throw "The option `${showOption loc}` is defined both null and not null, in ${showFiles (getFiles defs)}.";
          emptyValue.value = null;
          functor = elemFunctor "nullOr" elemType;
        }
      );

    functionTo =
      elemType:
      mkOptionType (
        wrapping elemType {
          part = [ "<function body>" ];
          rebuild = types.functionTo;
        }
        // {
          name = "functionTo";
          description = "function that evaluates to a(n) ${phraseOf elemType}";
          descriptionClass = "composite";
          check = lib.isFunction;
          merge = loc: defs: {
            __functionArgs = builtins.zipAttrsWith (_: all lib.id) (
              map (d: lib.functionArgs d.value) defs
            );
            __functor =
              _self: arg:
              (lib.mergeDefinitions (loc ++ [ "<function body>" ]) elemType (
                map (d: d // { value = d.value arg; }) defs
              )).mergedValue;
          };
          functor = elemFunctor "functionTo" elemType;
        }
      );

    either =
      a: b:
      mkOptionType {
        name = "either";
        description =
          if a.descriptionClass or null == "nonRestrictiveClause" then
            "${a.description}, or ${phraseOr b}"
          else
            "${phraseOr a} or ${
              phrase [
                "noun"
                "conjunction"
                "composite"
              ] b
            }";
        descriptionClass = "conjunction";
        check = v: a.check v || b.check v;
        merge =
          loc: defs:
          if all (d: a.check d.value) defs then
            a.merge loc defs
          else if all (d: b.check d.value) defs then
            b.merge loc defs
          else
            mergeOneOption loc defs;
        functor = defaultFunctor "either" // {
          payload.elemType = [
            a
            b
          ];
          type = payload: types.either (head payload.elemType) (lib.last payload.elemType);
          binOp =
            f: g:
            let
              merged = lib.zipListsWith (x: y: x.typeMerge y.functor) f.elemType g.elemType;
            in
            if builtins.elem null merged then null else { elemType = merged; };
        };
        nestedTypes = {
          left = a;
          right = b;
        };
      };

    oneOf =
      ts:
      if ts == [ ] then
        throw "types.oneOf needs to get at least one type in its argument"
      else
        foldl' types.either (head ts) (builtins.tail ts);

    coercedTo =
      from: coerce: to:
      assert lib.assertMsg (from.getSubModules == null)
        "coercedTo: coercedType must not have submodules (it’s a ${from.description})";
      mkOptionType {
        name = "coercedTo";
        description = "${phrase [ "noun" ] to} or ${phrase [ "noun" ] from} convertible to it";
        check = v: (from.check v && to.check (coerce v)) || to.check v;
        merge =
          loc: defs:
          to.merge loc (map (d: if from.check d.value then d // { value = coerce d.value; } else d) defs);
        inherit (to) emptyValue getSubModules getSubOptions;
        substSubModules = m: types.coercedTo from coerce (to.substSubModules m);
        typeMerge = _: null;
        nestedTypes = {
          coercedType = from;
          finalType = to;
        };
      };

    # --- modules ---

    submodule =
      modules:
      types.submoduleWith {
        shorthandOnlyDefinesConfig = true;
        modules = lib.toList modules;
      };

    submoduleWith =
      attrs@{
        modules,
        specialArgs ? { },
        shorthandOnlyDefinesConfig ? false,
        description ? null,
        class ? null,
      }:
      let
        base = lib.evalModules {
          inherit class specialArgs;
          modules = [
            # The real name comes with a definition; until then something must stand there.
            { _module.args.name = lib.mkOptionDefault "‹name›"; }
          ]
          ++ modules;
        };
        asModule =
          d:
          if isAttrs d.value && shorthandOnlyDefinesConfig then
            {
              _file = d.file;
              config = d.value;
            }
          else
            {
              _file = d.file;
              imports = [ d.value ];
            };
        forDocs =
          args:
          base.extendModules (
            args
            // {
              modules = [ { _module.check = lib.mkForce false; } ];
            }
          );
        # Same on both sides, or undecided on one.
        agree =
          what: a: b:
          if a == null || a == b then
            b
          else if b == null then
            a
          else
            throw "A submoduleWith option is declared multiple times with conflicting ${what}";
      in
      mkOptionType {
        name = "submodule";
        description =
          let
            inherit ((forDocs { })._module) freeformType;
          in
          if description != null then
            description
          else if freeformType ? description then
            "open submodule of ${phraseOf freeformType}"
          else
            "submodule";
        check = v: isAttrs v || lib.isFunction v || types.path.check v;
        merge =
          loc: defs:
          (base.extendModules {
            prefix = loc;
            modules = [ { _module.args.name = lib.last loc; } ] ++ map asModule defs;
          }).config;
        emptyValue.value = base.config;
        getSubOptions =
          prefix:
          let
            docs = forDocs { inherit prefix; };
            inherit (docs._module) freeformType;
          in
          docs.options
          // lib.optionalAttrs (freeformType != null) {
            _freeformOptions = freeformType.getSubOptions prefix;
          };
        getSubModules = modules;
        substSubModules = m: types.submoduleWith (attrs // { modules = m; });
        nestedTypes = lib.optionalAttrs (base._module.freeformType != null) {
          inherit (base._module) freeformType;
        };
        functor = defaultFunctor "submodule" // {
          payload = {
            inherit
              class
              description
              modules
              shorthandOnlyDefinesConfig
              specialArgs
              ;
          };
          type = types.submoduleWith;
          binOp =
            a: b:
            let
              both = attrNames (builtins.intersectAttrs a.specialArgs b.specialArgs);
            in
            {
              modules = a.modules ++ b.modules;
              specialArgs =
                if both == [ ] then
                  a.specialArgs // b.specialArgs
                else
                  throw "A submoduleWith option is declared multiple times with the same specialArgs \"${toString both}\"";
              class = agree "class values" a.class b.class;
              description = agree "descriptions" a.description b.description;
              shorthandOnlyDefinesConfig =
                agree "shorthandOnlyDefinesConfig values" a.shorthandOnlyDefinesConfig
                  b.shorthandOnlyDefinesConfig;
            };
        };
      };

    deferredModule = types.deferredModuleWith { };
    deferredModuleWith =
      {
        staticModules ? [ ],
      }:
      mkOptionType {
        name = "deferredModule";
        description = "module";
        descriptionClass = "noun";
        check = v: isAttrs v || lib.isFunction v || types.path.check v;
        merge = loc: defs: {
          imports =
            staticModules
            ++ map (
              d: lib.setDefaultModuleLocation "${d.file}, via option ${showOption loc}" d.value
            ) defs;
        };
        inherit (types.submoduleWith { modules = staticModules; }) getSubModules getSubOptions;
        substSubModules = m: types.deferredModuleWith { staticModules = m; };
        functor = defaultFunctor "deferredModuleWith" // {
          payload = { inherit staticModules; };
          type = types.deferredModuleWith;
          binOp = a: b: { staticModules = a.staticModules ++ b.staticModules; };
        };
      };

    # A type as a value, for `freeformType`.
    optionType = mkOptionType {
      name = "optionType";
      description = "optionType";
      descriptionClass = "noun";
      check = isType "option-type";
      merge =
        loc: defs:
        if length defs == 1 then
          (head defs).value
        else
          (lib.modules.fixupOptionType loc (
            lib.modules.mergeOptionDecls loc (
              map (d: {
                _file = d.file;
                options = lib.mkOption { type = d.value; };
              }) defs
            )
          )).type;
    };

    mergeTypes =
      a: b:
      let
        merged = a.typeMerge b.functor;
      in
      if merged == null then setType "merge-error" { error = "Cannot merge types"; } else merged;
  };

in
types
