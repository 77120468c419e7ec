# The JSON Schema of `roles` and `cluster` of a hive, from their declarations in modules/hive.nix.
{
  nixpkgs,
  lib ? import (nixpkgs + "/lib"),
}:
let
  options =
    (lib.evalModules {
      modules = [ ../../modules/hive.nix ];
    }).options;

  isOption = lib.isOption or (o: o._type or null == "option");
  visible = lib.filterAttrs (name: _: name != "_module");

  fromOption =
    option:
    fromType option.type
    // { description = lib.removeSuffix "\n" option.description; }
    // lib.optionalAttrs (option ? default) { inherit (option) default; };

  fromOptions =
    set:
    let
      options = visible set;
      mandatory = lib.filterAttrs (_: o: isOption o && !(o ? default)) options;
    in
    {
      type = "object";
      additionalProperties = false;
      properties = lib.mapAttrs (_: o: if isOption o then fromOption o else fromOptions o) options;
    }
    // lib.optionalAttrs (mandatory != { }) { required = builtins.attrNames mandatory; };

  anyOf =
    schemas:
    let
      different = lib.unique schemas;
    in
    if builtins.length different == 1 then builtins.head different else { anyOf = different; };

  integer = minimum: {
    type = "integer";
    inherit minimum;
  };

  fromType =
    type:
    let
      element = fromType type.nestedTypes.elemType;
      bounds = map lib.toInt (builtins.match "integer between ([0-9]+) and ([0-9]+) .*" type.description);
      simple = {
        bool.type = "boolean";
        str.type = "string";
        separatedString.type = "string";
        path.type = "string";
        raw = { }; # modules: any value
        unsignedInt = integer 0;
        positiveInt = integer 1;
        unsignedInt16 = integer 0 // { maximum = 65535; };
        # The type has its bounds only in its description.
        intBetween = integer (builtins.head bounds) // { maximum = lib.last bounds; };
        attrsOf = {
          type = "object";
          additionalProperties = element;
        };
        listOf = {
          type = "array";
          items = element;
        };
        nullOr = anyOf [
          { type = "null"; }
          element
        ];
        either = anyOf [
          (fromType type.nestedTypes.left)
          (fromType type.nestedTypes.right)
        ];
        enum.enum = type.functor.payload.values or type.functor.payload;
        submodule = fromOptions (type.getSubOptions [ ]);
      };
    in
    if lib.hasPrefix "strMatching " type.name then
      {
        type = "string";
        pattern = "^(${builtins.fromJSON (lib.removePrefix "strMatching " type.name)})$";
      }
    else
      simple.${type.name} or (throw "schema.nix: the type ${type.name} has no JSON Schema");
in
{
  "$schema" = "https://json-schema.org/draft/2020-12/schema";
  title = "nixbench hive";
  description = "The options `roles` and `cluster` of a hive.";
  type = "object";
  additionalProperties = false;
  properties = {
    "$schema".type = "string";
    roles = fromOption options.roles;
    cluster = fromOptions options.cluster // {
      description = "The cluster: its network, its hypervisors, and the address of its API.";
    };
  };
}
