# The module system: collect the modules, lay their definitions over the options
# they declare, and evaluate each option when it is asked for.
{ definitions, lib }:
let
  inherit (builtins) addErrorContext attrNames concatMap elem filter isAttrs mapAttrs;
  inherit (lib) mkMerge mkOption showDefs showOption types;
  inherit (lib.options) unknownModule;
  inherit (definitions) mkAliasDefinitions match pushDown;

  tagOf = v: v._type or null;

  # --- one module ---

  aboutModule = [ "_class" "_file" "disabledModules" "freeformType" "imports" "key" ];
  whole = aboutModule ++ [ "config" "meta" "options" ];

  # Whatever a module was written as becomes { file key class disabled imports options config }.
  normalise =
    file: key: m:
    let
      long = m ? config || m ? options;
      strangers = attrNames (removeAttrs m whole);
      extra =
        lib.optional (m ? freeformType) { _module.freeformType = m.freeformType; }
        ++ lib.optional (long && m ? meta) { inherit (m) meta; };
      config = if long then m.config or { } else removeAttrs m aboutModule;
    in
    if !isAttrs m then
      throw "A module must be an attribute set or a function that gives one; ${file} (${key}) is neither."
    else if long && strangers != [ ] then
      throw "Module `${key}' has an unsupported attribute `${builtins.head strangers}'. A module with `config' or `options' must have all its definitions in `config'; outside of it are: ${toString strangers}."
    else
      {
        file = if m ? _file then toString m._file else file;
        key = if m ? key then toString m.key else key;
        class = m._class or null;
        disabled = m.disabledModules or [ ];
        imports = m.imports or [ ];
        options = if long then m.options or { } else { };
        config = if extra == [ ] then config else mkMerge ([ config ] ++ extra);
      };

  # Only the named arguments are looked up, and each only when the module uses
  # it: that is why a module may define `_module.args.pkgs` and another ask for it.
  callModule =
    key: f: args:
    f (
      args
      // mapAttrs (
        name: _:
        addErrorContext "while looking up the argument `${name}' of the module ${key}:" (
          args.${name} or args.config._module.args.${name}
        )
      ) (lib.functionArgs f)
    );

  load =
    args: class: parent: anonymous: m:
    let
      path = toString m;
      imported = import m;
      called = key: v: if lib.isFunction v then callModule key v args else v;
      module =
        if lib.isFunction m then
          normalise parent anonymous (called anonymous m)
        else if isAttrs m then
          if elem (tagOf m) [ "if" "merge" "override" ] then
            normalise parent anonymous { config = m; }
          else if m ? _type then
            throw "Expected a module, but found a value of type \"${m._type}\", among the imports of ${parent}."
          else
            normalise parent anonymous m
        else if builtins.isList m then
          throw "Module imports can't be nested lists. There is one among the imports of ${parent}."
        else
          normalise path path (called path imported);
    in
    if class == null || module.class == null || module.class == class then
      module
    else
      throw "The module `${module.file}` is for class \"${module.class}\" and cannot be imported where class \"${class}\" is evaluated.";

  # --- all modules ---

  # Breadth first, each key once: the same order as NixOS, hence the same order
  # of merged lists.
  collect =
    class: args: modules:
    let
      expand =
        file: key:
        lib.imap1 (
          i: m:
          let
            module = load args class file "${key}:anon-${toString i}" m;
          in
          {
            inherit (module) key;
            inherit module;
            children = expand module.file module.key module.imports;
          }
        );
      roots = expand unknownModule "" modules;

      keyOf =
        file: m:
        if builtins.isString m && !lib.hasPrefix "/" m then
          "${toString (args.specialArgs.modulesPath or "")}/${m}"
        else if isAttrs m && !lib.isStringLike m then
          m.key or (throw "In `${file}', disabledModules names a module that has no `key'.")
        else
          toString m;
      disabledIn = concatMap (
        n: map (keyOf n.module.file) n.module.disabled ++ disabledIn n.children
      );

      disabled = disabledIn roots;
      enabled = if disabled == [ ] then lib.id else filter (n: !elem n.key disabled);
    in
    map (n: n.module) (
      builtins.genericClosure {
        startSet = enabled roots;
        operator = n: enabled n.children;
      }
    );

  # Declared in every evaluation, under `_module`.
  builtinModule = specialArgs: args: {
    _file = "lib/modules.nix";
    key = "lib/modules.nix";
    options._module = {
      args = mkOption {
        # Lazy: an argument that no module asks for is never computed.
        type = types.lazyAttrsOf types.raw;
        internal = true;
        description = "What modules may ask for as arguments.";
      };
      check = mkOption {
        default = true;
        type = types.bool;
        internal = true;
        description = "Whether a definition without an option is an error.";
      };
      freeformType = mkOption {
        type = types.nullOr types.optionType;
        internal = true;
        default = null;
        description = "The type of all definitions that no option declares.";
      };
      specialArgs = mkOption {
        type = types.raw;
        readOnly = true;
        internal = true;
        description = "The arguments that were given with the modules.";
      };
    };
    config._module = { inherit args specialArgs; };
  };

  # --- evaluation ---

  evalModules =
    evaluation@{
      modules,
      prefix ? [ ],
      specialArgs ? { },
      class ? null,
    }:
    let
      moduleArgs = {
        inherit config lib options specialArgs;
        _class = class;
        _prefix = prefix;
      }
      // specialArgs;

      # The last module's definitions come first.
      collected = lib.reverseList (
        collect class moduleArgs (
          modules
          ++ [
            (builtinModule specialArgs { inherit extendModules; moduleType = type; })
          ]
        )
      );
      part =
        attribute: m:
        map (value: { inherit (m) file; inherit value; }) attribute;

      matched = match prefix (concatMap (m: part [ m.options ] m) collected) (
        concatMap (m: part (pushDown m.config) m) collected
      );
      inherit (matched) options unmatched;

      valuesOf = mapAttrs (_: o: if tagOf o == "option" then o.value else valuesOf o);
      declared = valuesOf options;
      inherit (declared._module) check freeformType;
      config =
        if freeformType == null || unmatched == [ ] then
          declared
        else
          lib.recursiveUpdate (freeformType.merge prefix (
            map (d: {
              inherit (d) file;
              value = lib.setAttrByPath d.prefix d.value;
            }) unmatched
          )) declared;

      checked =
        value:
        if check && freeformType == null && unmatched != [ ] then
          throw (unknownOption prefix options (builtins.head unmatched))
        else
          value;

      extendModules =
        {
          modules ? [ ],
          specialArgs ? { },
          prefix ? evaluation.prefix or [ ],
        }:
        evalModules {
          inherit class prefix;
          modules = evaluation.modules ++ modules;
          specialArgs = evaluation.specialArgs or { } // specialArgs;
        };

      type = types.submoduleWith { inherit modules specialArgs class; };
    in
    {
      _type = "configuration";
      options = checked options;
      config = removeAttrs (checked config) [ "_module" ];
      _module = checked config._module;
      inherit class extendModules type;
    };

  unknownOption =
    prefix: options: d:
    "The option `${showOption (prefix ++ d.prefix)}' does not exist. Definition values:${showDefs [ d ]}"
    + lib.optionalString (attrNames options == [ "_module" ]) (
      "\n\nNo module declares an option"
      + lib.optionalString (prefix != [ ]) " of `${showOption prefix}'"
      + "; was one written to `config' that belongs in `options'?"
    );

  # --- options with another name ---

  alias =
    from: to: visible: use: warning:
    { config, options, ... }:
    let
      old = lib.getAttrFromPath from options;
    in
    {
      options = lib.setAttrByPath from (mkOption {
        inherit visible;
        type = (lib.getAttrFromPath to options).type;
        description = "Another name of `${showOption to}`.";
        apply = _: use (lib.getAttrFromPath to config);
      });
      config = mkMerge (
        [ (lib.setAttrByPath to (mkAliasDefinitions old)) ]
        ++ lib.optional (warning != null && options ? warnings) {
          warnings = lib.optional old.isDefined (warning old);
        }
      );
    };
in
{
  inherit evalModules;

  mkAliasOptionModule = from: to: alias from to true lib.id null;

  mkRenamedOptionModule =
    from: to:
    let
      names = "`${showOption from}' is used. It was renamed to `${showOption to}'.";
    in
    alias from to false (builtins.trace "Obsolete option ${names}") (
      old:
      "The option `${showOption from}' defined in ${lib.showFiles old.files} has been renamed to `${showOption to}'."
    );

  mkRemovedOptionModule =
    path: advice:
    { options, ... }:
    let
      gone = "The option `${showOption path}' can no longer be used since it's been removed.";
      old = lib.getAttrFromPath path options;
    in
    {
      options = lib.setAttrByPath path (mkOption {
        visible = false;
        apply = _: throw "${gone} ${advice}";
      });
      config.assertions = [
        {
          assertion = !old.isDefined;
          message = "${gone} It is set in ${lib.showFiles old.files}. ${advice}";
        }
      ];
    };
}
