# Questions about packages.
{ lib }:
{
  # The program a package is for.
  getExe =
    x:
    lib.getExe' x (
      x.meta.mainProgram or (lib.warn
        "getExe: Package ${
          builtins.toJSON x.meta.name or x.pname or x.name
        } does not have the meta.mainProgram attribute. We'll assume that the main program has the same name for now, but this behavior is deprecated, because it leads to surprising errors when the assumption does not hold. If the package has a main program, please set `meta.mainProgram` in its definition to make this warning go away. Otherwise, if the package does not have a main program, or if you don't control its definition, use getExe' to specify the name to the program, such as lib.getExe' foo \"bar\"."
        (lib.getName x)
      )
    );

  getExe' =
    x: program:
    assert lib.assertMsg (lib.isDerivation x)
      "lib.meta.getExe': The first argument is of type ${builtins.typeOf x}, but it should be a derivation instead.";
    assert lib.assertMsg (builtins.isString program)
      "lib.meta.getExe': The second argument is of type ${builtins.typeOf program}, but it should be a string instead.";
    assert lib.assertMsg (builtins.match ".*/.*" program == null)
      "lib.meta.getExe': The second argument \"${program}\" is a nested path with a \"/\" character, but it should just be the name of the executable instead.";
    "${lib.getBin x}/bin/${program}";

  setPrio = priority: drv: drv // { meta = drv.meta or { } // { inherit priority; }; };
  lowPrio = drv: drv // { meta = drv.meta or { } // { priority = 10; }; };
  hiPrio = drv: drv // { meta = drv.meta or { } // { priority = -10; }; };
  addMetaAttrs = new: drv: drv // { meta = drv.meta or { } // new; };
}
