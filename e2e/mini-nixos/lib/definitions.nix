# Definitions of options: the properties they carry, the option they belong to,
# and how several of them become one value.
{ lib }:
let
  inherit (builtins) addErrorContext all concatMap filter foldl' head isAttrs length mapAttrs;
  inherit (lib) mkOption showDefs showOption types;

  tagOf = v: v._type or null;

  # Definitions and declarations of a set, sorted by the attribute they are for.
  byName =
    entry: sets:
    builtins.zipAttrsWith (_: entries: entries) (
      map (s: mapAttrs (name: entry s name) s.value) sets
    );
  definitionsByName = byName (
    d: _: value: { inherit (d) file; inherit value; }
  );
in
rec {
  # --- properties ---

  defaultOverridePriority = 100;
  defaultOrderPriority = 1000;

  mkIf = condition: content: { _type = "if"; inherit condition content; };
  mkMerge = contents: { _type = "merge"; inherit contents; };
  mkOverride = priority: content: { _type = "override"; inherit priority content; };
  mkOrder = priority: content: { _type = "order"; inherit priority content; };
  mkOptionDefault = mkOverride 1500;
  mkDefault = mkOverride 1000;
  mkForce = mkOverride 50;
  mkVMOverride = mkOverride 10;
  mkBefore = mkOrder 500;
  mkAfter = mkOrder 1500;

  # All definitions of one option as a definition of another, as strong as they are.
  mkAliasDefinitions =
    option:
    mkIf option.isDefined (
      mkMerge (map (mkOverride (option.highestPrio or defaultOverridePriority)) option.definitions)
    );
  mkDerivedConfig =
    option: f: mkOverride (option.highestPrio or defaultOverridePriority) (f option.value);

  # Move mkMerge, mkIf and mkOverride from a set to its attributes. Conditions
  # stay unevaluated, so that they may depend on the very configuration they shape.
  pushDown =
    v:
    let
      below = wrap: map (set: if isAttrs set then mapAttrs (_: wrap) set else set) (pushDown v.content);
    in
    if tagOf v == "merge" then
      concatMap pushDown v.contents
    else if tagOf v == "if" then
      below (mkIf v.condition)
    else if tagOf v == "override" then
      below (mkOverride v.priority)
    else
      [ v ];
  pushDownIn =
    d:
    map (value: { inherit (d) file; inherit value; }) (pushDown d.value);

  # Here, and only here, conditions are decided.
  discharge =
    v:
    if tagOf v == "merge" then
      concatMap discharge v.contents
    else if tagOf v == "if" then
      if !builtins.isBool v.condition then
        throw "mkIf needs true or false as its condition, not a ${builtins.typeOf v.condition}"
      else
        lib.optionals v.condition (discharge v.content)
    else
      [ v ];

  # --- declarations ---

  # declared: [ { file value } ] of declarations, defined: the same of definitions
  # with their properties pushed down. Gives the tree of evaluated options and
  # the definitions that match none.
  match =
    prefix: declared: defined:
    let
      checked =
        what:
        map (
          s:
          if isAttrs s.value then
            s
          else
            throw "In `${s.file}', `${showOption prefix}' has ${what} below it, but here it is a ${builtins.typeOf s.value}."
        );
      declarations = definitionsByName (checked "options" declared);
      definitions = definitionsByName (checked "options" defined);

      results = mapAttrs (
        name: decls:
        let
          loc = prefix ++ [ name ];
          defs = definitions.${name} or [ ];
          options = filter (d: isDeclaration loc d) decls;
          found = opts: {
            options = evalOptionValue loc (mergeOptionDecls loc opts) defs;
            unmatched = [ ];
          };
        in
        if length options == length decls then
          found decls
        else if options == [ ] then
          match loc decls (concatMap pushDownIn defs)
        else if all (d: d.value.type.name or null == "submodule") options then
          # Options declared below a submodule option become part of the submodule.
          found (map asSubmodule decls)
        else
          throw "The option `${showOption loc}' in module `${(head options).file}' would be a parent of the following options, but its type `${
            (head options).value.type.description or "<no description>"
          }' does not support nested options.\n${
            lib.concatMapStrings (
              d:
              lib.concatMapStrings (
                n: " - option(s) with prefix `${showOption (loc ++ [ n ])}' in module `${d.file}'\n"
              ) (lib.attrNames d.value)
            ) (filter (d: tagOf d.value != "option") decls)
          }"
      ) declarations;

      located = name: map (d: d // { prefix = [ name ] ++ d.prefix or [ ]; });
    in
    {
      options = mapAttrs (_: r: r.options) results;
      unmatched =
        # Without definitions nothing can be left over, and no option is looked at.
        lib.optionals (defined != [ ]) (
          lib.concatLists (
            lib.mapAttrsToList located (
              mapAttrs (_: r: r.unmatched) results // removeAttrs definitions (lib.attrNames results)
            )
          )
        );
    };

  isDeclaration =
    loc: d:
    tagOf d.value == "option"
    || (
      d.value ? _type
      && throw "In module ${d.file}: expected an option declaration at option path `${showOption loc}` but got an attribute set with type ${d.value._type}"
    );

  asSubmodule =
    d:
    if tagOf d.value == "option" then
      d
    else
      {
        inherit (d) file;
        value = mkOption {
          type = types.submoduleWith {
            modules = [ { options = d.value; } ];
            # Undecided: takes the value of the declaration it is merged with.
            shorthandOnlyDefinesConfig = null;
          };
        };
      };

  # One option of all its declarations; submodules remember where each came from.
  mergeOptionDecls =
    loc: decls:
    let
      step =
        acc: d:
        let
          opt = d.value;
          type = acc.type.typeMerge opt.type.functor;
          clash = throw "The option `${showOption loc}' in `${d.file}' is already declared in ${lib.showFiles acc.declarations}.";
          twice = n: acc ? ${n} && opt ? ${n};
          modules = opt.type.getSubModules or null;
        in
        if builtins.any twice [ "default" "example" "description" "apply" ] then
          clash
        else
          opt
          // acc
          // {
            declarations = acc.declarations ++ [ d.file ];
            modules =
              lib.optionals (modules != null) (map (setDefaultModuleLocation d.file) modules)
              ++ acc.modules;
          }
          // lib.optionalAttrs (twice "type") { type = if type == null then clash else type; };
      all = foldl' step {
        inherit loc;
        declarations = [ ];
        modules = [ ];
      } decls;
      type = all.type or types.unspecified;
    in
    removeAttrs all [ "modules" ]
    // {
      type = if type.getSubModules or null == null then type else type.substSubModules all.modules;
    };

  setDefaultModuleLocation = file: m: {
    _file = file;
    imports = [ m ];
  };

  # --- values ---

  evalOptionValue =
    loc: opt: defs:
    let
      all =
        lib.optional (opt ? default) {
          file = head opt.declarations;
          value = mkOptionDefault opt.default;
        }
        ++ defs;
      single = d: d // { value = (mergeDefinitions loc opt.type [ d ]).mergedValue; };
      merged =
        if opt.readOnly or false && length all > 1 then
          throw "The option `${showOption loc}' is read-only, but it's set multiple times. Definition values:${showDefs (map single all)}"
        else
          mergeDefinitions loc opt.type all;
      value = merged.mergedValue;
    in
    opt
    // {
      value = addErrorContext "while evaluating the option `${showOption loc}':" (
        if opt ? apply then opt.apply value else value
      );
      inherit (merged) isDefined;
      inherit (merged.defsFinal') highestPrio;
      definitions = map (d: d.value) merged.defsFinal;
      files = map (d: d.file) merged.defsFinal;
      definitionsWithLocations = merged.defsFinal;
      __toString = _: showOption loc;
    };

  mergeDefinitions = loc: type: defs: rec {
    defsFinal' =
      let
        strongest = filterOverrides' (
          concatMap (
            d:
            map (value: {
              inherit (d) file;
              inherit value;
            }) (addErrorContext "while evaluating definitions from `${d.file}':" (discharge d.value))
          ) defs
        );
      in
      {
        inherit (strongest) highestPrio;
        values =
          if builtins.any (d: tagOf d.value == "order") strongest.values then
            sortProperties strongest.values
          else
            strongest.values;
      };
    defsFinal = defsFinal'.values;

    isDefined = defsFinal != [ ];
    optionalValue = lib.optionalAttrs isDefined { value = mergedValue; };
    mergedValue =
      if isDefined then
        if all (d: type.check d.value) defsFinal then
          type.merge loc defsFinal
        else
          throw "A definition for option `${showOption loc}' is not of type `${type.description}'. Definition values:${
            showDefs (filter (d: !type.check d.value) defsFinal)
          }"
      else
        type.emptyValue.value
          or (throw "The option `${showOption loc}' was accessed but has no value defined. Try setting the option.");
  };

  # Only the strongest definitions count; a lower number is stronger.
  filterOverrides' =
    defs:
    let
      strength = d: if tagOf d.value == "override" then d.value.priority else defaultOverridePriority;
      highestPrio = foldl' (best: d: lib.min best (strength d)) 9999 defs;
      content = d: if tagOf d.value == "override" then d // { value = d.value.content; } else d;
    in
    {
      inherit highestPrio;
      values = map content (filter (d: strength d == highestPrio) defs);
    };

  sortProperties =
    defs:
    let
      place = d: if tagOf d.value == "order" then d.value.priority else defaultOrderPriority;
      content = d: if tagOf d.value == "order" then d // { value = d.value.content; } else d;
    in
    map content (lib.sort (a: b: place a < place b) defs);
}
