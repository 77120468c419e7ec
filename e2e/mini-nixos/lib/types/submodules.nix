# Types whose values are modules.
{ kit, lib }:
let
  inherit (lib) types;

  isModule = v: builtins.isAttrs v || lib.isFunction v || types.path.check v;

  # What two declarations say, where one may leave it open with null.
  agree =
    what: a: b:
    if a == null then
      b
    else if b == null || a == b then
      a
    else
      throw "Two declarations of a submodule option differ in their ${what}.";
in
{
  submodule =
    modules:
    types.submoduleWith {
      modules = lib.toList modules;
      shorthandOnlyDefinesConfig = true;
    };

  submoduleWith =
    args@{
      class ? null,
      description ? null,
      modules,
      shorthandOnlyDefinesConfig ? false,
      specialArgs ? { },
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
        { _file = d.file; }
        // (
          if shorthandOnlyDefinesConfig && builtins.isAttrs d.value then
            { config = d.value; }
          else
            { imports = [ d.value ]; }
        );
      # Without definitions, to see what is declared.
      bare = more: base.extendModules (more // { modules = [ { _module.check = lib.mkForce false; } ]; });
    in
    kit.mkOptionType {
      name = "submodule";
      description =
        let
          freeform = (bare { })._module.freeformType;
        in
        if description != null then
          description
        else if freeform == null then
          "submodule"
        else
          "open submodule of ${kit.asElement freeform}";
      check = isModule;
      emptyValue.value = base.config;
      merge =
        loc: defs:
        (base.extendModules {
          prefix = loc;
          modules = [ { _module.args.name = lib.last loc; } ] ++ map asModule defs;
        }).config;
      getSubModules = modules;
      substSubModules = modules: types.submoduleWith (args // { inherit modules; });
      getSubOptions =
        prefix:
        let
          docs = bare { inherit prefix; };
          freeform = docs._module.freeformType;
        in
        docs.options
        // lib.optionalAttrs (freeform != null) { _freeformOptions = freeform.getSubOptions prefix; };
      functor = {
        name = "submodule";
        payload = {
          inherit class description modules shorthandOnlyDefinesConfig specialArgs;
        };
        type = types.submoduleWith;
        binOp = a: b: {
          modules = a.modules ++ b.modules;
          specialArgs = a.specialArgs // b.specialArgs;
          class = agree "classes" a.class b.class;
          description = agree "descriptions" a.description b.description;
          shorthandOnlyDefinesConfig =
            agree "shorthands" a.shorthandOnlyDefinesConfig
              b.shorthandOnlyDefinesConfig;
        };
      };
    };

  deferredModule = kit.noun "deferredModule" "module" {
    check = isModule;
    merge = loc: defs: {
      imports = map (
        d: lib.setDefaultModuleLocation "${d.file}, via option ${lib.showOption loc}" d.value
      ) defs;
    };
  };
}
