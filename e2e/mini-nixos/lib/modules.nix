# The module system: collect modules, match definitions with declarations, merge.
#
# Three stages, each lazy in what it does not need:
#   collect    follow `imports` and give every module the same shape
#   match      lay definitions over the tree of declared options
#   merge      reduce one option's definitions to its value
{ lib }:
let
  inherit (builtins)
    addErrorContext
    all
    attrNames
    concatLists
    concatMap
    elem
    filter
    foldl'
    head
    isAttrs
    isList
    length
    mapAttrs
    toString
    zipAttrsWith
    ;
  inherit (lib.options)
    isOption
    mkOption
    showDefs
    showFiles
    showOption
    unknownModule
    ;
  inherit (lib) types;

  tagOf = v: v._type or null;

  # --- collect ---

  metaAttrs = [
    "_class"
    "_file"
    "disabledModules"
    "freeformType"
    "imports"
    "key"
  ];
  structuredAttrs = metaAttrs ++ [
    "config"
    "meta"
    "options"
  ];

  # Whatever a module was written as becomes { file key class disabled imports options config }.
  normalise =
    file: key: m:
    let
      structured = m ? config || m ? options;
      strangers = removeAttrs m structuredAttrs;
      # `require` is an old spelling of `imports`, in the short form only.
      plain = removeAttrs m (metaAttrs ++ [ "require" ]);
      withFreeform =
        config:
        if m ? freeformType then
          mkMerge [
            config
            { _module.freeformType = m.freeformType; }
          ]
        else
          config;
      withMeta =
        config:
        if m ? meta then
          mkMerge [
            config
            { inherit (m) meta; }
          ]
        else
          config;
    in
    if !isAttrs m then
      throw "module ${file} (${key}) does not look like a module."
    else if structured && strangers != { } then
      throw "Module `${key}' has an unsupported attribute `${head (attrNames strangers)}'. This is caused by introducing a top-level `config' or `options' attribute. Add configuration attributes immediately on the top level instead, or move all of them (namely: ${toString (attrNames strangers)}) into the explicit `config' attribute."
    else
      {
        file = if m ? _file then toString m._file else file;
        key = if m ? key then toString m.key else key;
        class = m._class or null;
        disabled = m.disabledModules or [ ];
        imports = (if structured then [ ] else m.require or [ ]) ++ m.imports or [ ];
        options = if structured then m.options or { } else { };
        config = withFreeform (if structured then withMeta (m.config or { }) else plain);
      };

  # Only the named arguments are looked up, and each only when the module uses
  # it: that is why a module may define `_module.args.pkgs` and another ask for it.
  callModule =
    key: f: args:
    f (
      args
      // mapAttrs (
        name: _:
        addErrorContext "while evaluating the module argument `${name}' in \"${key}\":" (
          args.${name} or (addErrorContext
            "noting that argument `${name}` is not externally provided, so querying `_module.args` instead, requiring `config`"
            args.config._module.args.${name}
          )
        )
      ) (lib.functionArgs f)
    );

  load =
    args: class: parentFile: fallbackKey: m:
    let
      path = toString m;
      imported = import m;
      module =
        if lib.isFunction m then
          normalise parentFile fallbackKey (callModule fallbackKey m args)
        else if isAttrs m then
          if elem (tagOf m) [
            null
            "module"
          ] then
            normalise parentFile fallbackKey (removeAttrs m [ "_type" ])
          else if
            elem (tagOf m) [
              "if"
              "override"
            ]
          then
            normalise parentFile fallbackKey { config = m; }
          else
            throw "Expected a module, but found a value of type ${lib.strings.escapeNixString (tagOf m)}${
              lib.optionalString (parentFile != unknownModule) ", while trying to load a module into ${parentFile}"
            }."
        else if isList m then
          throw "Module imports can't be nested lists. Perhaps you meant to remove one level of lists? Definitions: ${
            showDefs [
              {
                file = parentFile;
                value = m;
              }
            ]
          }"
        else
          normalise path path (if lib.isFunction imported then callModule path imported args else imported);
    in
    if class == null || module.class == null || module.class == class then
      module
    else
      throw "The module `${module.file}` (class: ${lib.strings.escapeNixString module.class}) cannot be imported into a module evaluation that expects class ${lib.strings.escapeNixString class}.";

  # Breadth first, each key once: the same order as NixOS, hence the same order
  # of merged lists.
  collect =
    class: args: modules:
    let
      expand =
        parentFile: parentKey: ms:
        lib.imap1 (
          i: m:
          let
            module = load args class parentFile "${parentKey}:anon-${toString i}" m;
          in
          {
            inherit (module) key;
            inherit module;
            children = expand module.file module.key module.imports;
          }
        ) ms;

      roots = expand unknownModule "" modules;

      disabledIn =
        nodes:
        concatMap (n: map (disabledKey n.module.file) n.module.disabled ++ disabledIn n.children) nodes;
      disabledKey =
        file: m:
        if builtins.isString m then
          if lib.hasPrefix "/" m then m else "${toString (args.specialArgs.modulesPath or "")}/${m}"
        else if lib.strings.isConvertibleWithToString m then
          toString m
        else if m ? key then
          m.key
        else if isAttrs m then
          throw "Module `${file}` contains a disabledModules item that is an attribute set, presumably a module, that does not have a `key` attribute. This means that the module system doesn't have any means to identify the module that should be disabled. Make sure that you've put the correct value in disabledModules: a string path relative to modulesPath, a path value, or an attribute set with a `key` attribute."
        else
          throw "Each disabledModules item must be a path, string, or a attribute set with a key attribute, or a value supported by toString. However, one of the disabledModules items in `${file}` is none of that, but is of type ${builtins.typeOf m}.";

      disabled = disabledIn roots;
      enabled = if disabled == [ ] then lib.id else filter (n: !elem n.key disabled);
    in
    map (n: n.module) (
      builtins.genericClosure {
        startSet = enabled roots;
        operator = n: enabled n.children;
      }
    );

  # --- match ---

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

  grouped = zipAttrsWith (_: values: values);

  # declared: [ { file options } ], defined: [ { file value } ], values pushed down.
  # Gives the tree of evaluated options and the definitions that match none.
  match =
    prefix: declared: defined:
    let
      declarations = grouped (
        map (
          d:
          if isAttrs d.options then
            mapAttrs (n: options: {
              inherit (d) file;
              inherit options;
              pos = builtins.unsafeGetAttrPos n d.options;
            }) d.options
          else
            throw ''
              An option declaration for `${lib.concatStringsSep "." prefix}' has type
              `${builtins.typeOf d.options}' rather than an attribute set.
              Did you mean to define this outside of `options'?
            ''
        ) declared
      );

      definitions = grouped (
        map (
          d:
          if isAttrs d.value then
            mapAttrs (_: value: {
              inherit (d) file;
              inherit value;
            }) d.value
          else
            throw ''
              In module `${d.file}', you're trying to define a value of type `${builtins.typeOf d.value}'
              rather than an attribute set for the option
              `${lib.concatStringsSep "." prefix}'!

              This usually happens if `${lib.concatStringsSep "." prefix}' has option
              definitions inside that are not matched. Please check how to properly define
              this option by e.g. referring to `man 5 configuration.nix'!
            ''
        ) defined
      );

      results = mapAttrs (
        name: decls:
        let
          loc = prefix ++ [ name ];
          defs = definitions.${name} or [ ];
          options = filter (d: isOptionDecl loc d) decls;
          found = opts: {
            options = evalOptionValue loc (fixupOptionType loc (mergeOptionDecls loc opts)) defs;
            unmatched = [ ];
          };
        in
        if length options == length decls then
          found decls
        else if options == [ ] then
          match loc decls (
            concatMap (
              d:
              map (value: {
                inherit (d) file;
                inherit value;
              }) (pushDown d.value)
            ) defs
          )
        else if all (d: d.options.type.name or null == "submodule") options then
          # Options declared below a submodule option become part of the submodule.
          found (map asSubmodule decls)
        else
          throw "The option `${showOption loc}' in module `${(head options).file}' would be a parent of the following options, but its type `${
            (head options).options.type.description or "<no description>"
          }' does not support nested options.\n${
            lib.concatStringsSep "\n" (
              lib.sort lib.lessThan (
                concatMap (
                  d:
                  map (
                    n: " - option(s) with prefix `${showOption (loc ++ [ n ])}' in module `${d.file}'"
                  ) (attrNames d.options)
                ) (filter (d: !isOption d.options) decls)
              )
            )
          }"
      ) declarations;

      located = lib.mapAttrsToList (
        name: map (d: d // { prefix = [ name ] ++ d.prefix or [ ]; })
      );
    in
    {
      options = mapAttrs (_: r: r.options) results;
      unmatched =
        # Without definitions nothing can be left over, and no option is looked at.
        if defined == [ ] then
          [ ]
        else
          concatLists (
            located (
              mapAttrs (_: r: r.unmatched) results
              // builtins.removeAttrs definitions (attrNames results)
            )
          );
    };

  isOptionDecl =
    loc: d:
    isOption d.options
    || (
      d.options ? _type
      && throw "In module ${d.file}: expected an option declaration at option path `${showOption loc}` but got an attribute set with type ${d.options._type}"
    );

  asSubmodule =
    d:
    if isOption d.options then
      d
    else
      d
      // {
        options = mkOption {
          type = types.submoduleWith {
            modules = [ { inherit (d) options; } ];
            # Undecided: takes the value of the declaration it is merged with.
            shorthandOnlyDefinesConfig = null;
          };
        };
      };

  mergeOptionDecls =
    loc:
    foldl'
      (
        acc: d:
        let
          file = d.file or d._file;
          opt = d.options;
          merged = acc.type.typeMerge opt.type.functor;
          twice = n: acc ? ${n} && opt ? ${n};
          clash = throw "The option `${showOption loc}' in `${file}' is already declared in ${showFiles acc.declarations}.";
          submodules = opt.type.getSubModules or null;
        in
        if twice "default" || twice "example" || twice "description" || twice "apply" then
          clash
        else
          opt
          // acc
          // {
            declarations = acc.declarations ++ [ file ];
            declarationPositions = acc.declarationPositions ++ [
              (
                if d.pos or null != null then
                  d.pos
                else
                  {
                    inherit file;
                    line = null;
                    column = null;
                  }
              )
            ];
            options =
              lib.optionals (submodules != null) (map (setDefaultModuleLocation file) submodules)
              ++ acc.options;
          }
          // lib.optionalAttrs (twice "type") { type = if merged == null then clash else merged; }
      )
      {
        inherit loc;
        declarations = [ ];
        declarationPositions = [ ];
        options = [ ];
      };

  # Give the submodules collected above back to the option's type.
  fixupOptionType =
    _loc: opt:
    if opt.type.getSubModules or null == null then
      opt // { type = opt.type or types.unspecified; }
    else
      opt
      // {
        type = opt.type.substSubModules opt.options;
        options = [ ];
      };

  # --- merge ---

  evalOptionValue =
    loc: opt: defs:
    let
      withDefault =
        lib.optional (opt ? default) {
          file = head opt.declarations;
          value = mkOptionDefault opt.default;
        }
        ++ defs;
      merged =
        if opt.readOnly or false && length withDefault > 1 then
          throw "The option `${showOption loc}' is read-only, but it's set multiple times. Definition values:${
            showDefs (
              map (d: d // { value = (mergeDefinitions loc opt.type [ d ]).mergedValue; }) withDefault
            )
          }"
        else
          mergeDefinitions loc opt.type withDefault;
      apply = opt.apply or lib.id;
    in
    opt
    // {
      value = addErrorContext "while evaluating the option `${showOption loc}':" (
        apply merged.mergedValue
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
        present = concatMap (
          d:
          map (
            value:
            if tagOf value == "definition" then
              value
            else
              {
                inherit (d) file;
                inherit value;
              }
          ) (addErrorContext "while evaluating definitions from `${d.file}':" (discharge d.value))
        ) defs;
        winners = filterOverrides' present;
        ordered =
          if builtins.any (d: tagOf d.value == "order") winners.values then
            sortProperties winners.values
          else
            winners.values;
      in
      {
        values = ordered;
        inherit (winners) highestPrio;
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
      else if type.emptyValue ? value then
        type.emptyValue.value
      else
        throw "The option `${showOption loc}' was accessed but has no value defined. Try setting the option.";
  };

  # Here, and only here, conditions are decided.
  discharge =
    v:
    if tagOf v == "merge" then
      concatMap discharge v.contents
    else if tagOf v == "if" then
      if !builtins.isBool v.condition then
        throw "‘mkIf’ called with a non-Boolean condition"
      else if v.condition then
        discharge v.content
      else
        [ ]
    else
      [ v ];

  filterOverrides = defs: (filterOverrides' defs).values;
  filterOverrides' =
    defs:
    let
      prioOf = d: if tagOf d.value == "override" then d.value.priority else defaultOverridePriority;
      highestPrio = foldl' (best: d: lib.min best (prioOf d)) 9999 defs;
    in
    {
      inherit highestPrio;
      values = map (d: if tagOf d.value == "override" then d // { value = d.value.content; } else d) (
        filter (d: prioOf d == highestPrio) defs
      );
    };

  sortProperties =
    defs:
    lib.sort (a: b: (a.priority or defaultOrderPriority) < (b.priority or defaultOrderPriority)) (
      map (
        d:
        if tagOf d.value == "order" then
          d
          // {
            value = d.value.content;
            inherit (d.value) priority;
          }
        else
          d
      ) defs
    );

  # --- properties ---

  defaultOverridePriority = 100;
  defaultOrderPriority = 1000;

  mkIf = condition: content: {
    _type = "if";
    inherit condition content;
  };
  mkMerge = contents: {
    _type = "merge";
    inherit contents;
  };
  mkOverride = priority: content: {
    _type = "override";
    inherit priority content;
  };
  mkOrder = priority: content: {
    _type = "order";
    inherit priority content;
  };
  mkDefinition = args: args // { _type = "definition"; };
  mkOptionDefault = mkOverride 1500;

  setDefaultModuleLocation = file: m: {
    _file = file;
    imports = [ m ];
  };

  # --- evaluation ---

  # Declared in every evaluation, under `_module`.
  builtinModule =
    specialArgs: args:
    rec {
      _file = "lib/modules.nix";
      key = _file;
      options._module = {
        args = mkOption {
          # Lazy: an argument that no module asks for is never computed.
          type = types.lazyAttrsOf types.raw;
          internal = true;
          description = "Additional arguments passed to each module.";
        };
        check = mkOption {
          type = types.bool;
          internal = true;
          default = true;
          description = "Whether to check whether all option definitions have matching declarations.";
        };
        freeformType = mkOption {
          type = types.nullOr types.optionType;
          internal = true;
          default = null;
          description = "The type of all definitions that no option declares.";
        };
        specialArgs = mkOption {
          readOnly = true;
          internal = true;
          description = "The `specialArgs` of the evaluation.";
        };
      };
      config._module = { inherit args specialArgs; };
    };

  evalModules =
    evalArgs@{
      modules,
      prefix ? [ ],
      specialArgs ? { },
      class ? null,
    }:
    let
      moduleArgs = {
        inherit lib options specialArgs;
        _class = class;
        _prefix = prefix;
        config = addErrorContext "if you get an infinite recursion here, you probably reference `config` in `imports`. If you are trying to achieve a conditional import behavior dependent on `config`, consider importing unconditionally, and using `mkEnableOption` and `mkIf` to control its effect." config;
      }
      // specialArgs;

      collected = lib.reverseList (
        collect class moduleArgs (
          modules
          ++ [
            (builtinModule specialArgs {
              inherit extendModules;
              moduleType = type;
            })
          ]
        )
      );

      matched = match prefix collected (
        concatMap (
          m:
          map (value: {
            inherit (m) file;
            inherit value;
          }) (pushDown m.config)
        ) collected
      );
      inherit (matched) options;

      valuesOf = mapAttrs (_: o: if isOption o then o.value else valuesOf o);
      declaredConfig = valuesOf options;
      inherit (declaredConfig._module) freeformType;
      freeformConfig = freeformType.merge prefix (
        map (d: {
          inherit (d) file;
          value = lib.setAttrByPath d.prefix d.value;
        }) matched.unmatched
      );
      config =
        if freeformType == null then
          declaredConfig
        else if matched.unmatched == [ ] then
          declaredConfig
        else
          lib.recursiveUpdate freeformConfig declaredConfig;

      checked = builtins.seq (
        if declaredConfig._module.check && freeformType == null && matched.unmatched != [ ] then
          unknownOption prefix options (head matched.unmatched)
        else
          null
      );

      extendModules =
        {
          modules ? [ ],
          specialArgs ? { },
          prefix ? evalArgs.prefix or [ ],
        }:
        evalModules (
          evalArgs
          // {
            inherit prefix;
            modules = evalArgs.modules ++ modules;
            specialArgs = evalArgs.specialArgs or { } // specialArgs;
          }
        );

      type = types.submoduleWith { inherit modules specialArgs class; };
    in
    {
      _type = "configuration";
      options = checked options;
      config = checked (builtins.removeAttrs config [ "_module" ]);
      _module = checked config._module;
      inherit class extendModules type;
    };

  unknownOption =
    prefix: options: def:
    let
      name = showOption (prefix ++ def.prefix);
      message = "The option `${name}' does not exist. Definition values:${
        addErrorContext
          "while evaluating the error message for definitions for `${name}', which is an option that does not exist"
          (showDefs [ def ])
      }";
    in
    if attrNames options != [ "_module" ] then
      throw message
    else if prefix == [ ] then
      throw ''
        ${message}

        It seems as if you're trying to declare an option by placing it into `config' rather than `options'!
      ''
    else
      throw ''
        ${message}

        However there are no options defined in `${showOption prefix}'. Are you sure you've
        declared your options properly? This can happen if you e.g. declared your options in `types.submodule'
        under `config' rather than `options'.
      '';
in
{
  inherit
    defaultOrderPriority
    defaultOverridePriority
    evalModules
    evalOptionValue
    filterOverrides
    filterOverrides'
    fixupOptionType
    mergeDefinitions
    mergeOptionDecls
    mkDefinition
    mkIf
    mkMerge
    mkOptionDefault
    mkOrder
    mkOverride
    setDefaultModuleLocation
    sortProperties
    ;

  mkDefault = mkOverride 1000;
  mkImageMediaOverride = mkOverride 60;
  mkForce = mkOverride 50;
  mkVMOverride = mkOverride 10;
  mkBefore = mkOrder 500;
  mkAfter = mkOrder 1500;

  mkAssert =
    assertion: message: mkIf (if assertion then true else throw "\nFailed assertion: ${message}");

  mergeAttrDefinitionsWithPrio =
    opt:
    let
      byName = grouped (
        concatMap (
          d: map (mapAttrs (_: value: d // { inherit value; })) (pushDown d.value)
        ) opt.definitionsWithLocations
      );
    in
    mapAttrs (
      name: defs:
      let
        merged = mergeDefinitions (opt.loc ++ [ name ]) opt.type.nestedTypes.elemType defs;
      in
      {
        value = merged.mergedValue;
        inherit (merged.defsFinal') highestPrio;
      }
    ) byName;

  importApply =
    file: arg:
    setDefaultModuleLocation file (import file arg);
  importJSON = file: {
    _file = file;
    config = lib.importJSON file;
  };
  importTOML = file: {
    _file = file;
    config = lib.importTOML file;
  };
}
