# Functions with which types are defined.
{ lib }:
let
  # How two declarations of one option combine their types: those of one name
  # do, and where they have a payload, `binOp` decides about it.
  combine =
    ours: theirs:
    let
      both = ours.binOp ours.payload theirs.payload;
    in
    if ours.name != theirs.name then
      null
    else if ours.payload == null then
      ours.type
    else if both == null then
      null
    else
      ours.type both;
in
rec {
  setType = name: v: v // { _type = name; };
  isType = name: v: v._type or "" == name;
  isOptionType = isType "option-type";

  # A description inside another: in parentheses, unless its class is one that
  # cannot be misread there.
  phrase =
    classes: type:
    if builtins.elem (type.descriptionClass or null) classes then
      type.description
    else
      "(${type.description})";
  asElement = phrase [ "noun" "composite" ];
  asAlternative = phrase [ "noun" "conjunction" ];

  defaultFunctor = name: {
    inherit name;
    payload = null;
    binOp = _: lib.const null;
    type = lib.types.${name} or null;
  };

  mkOptionType =
    given@{ name, ... }:
    let
      type = {
        _type = "option-type";
        description = name;
        descriptionClass = null;
        check = _: true;
        merge = lib.options.mergeDefaultOption;
        emptyValue = { };
        getSubOptions = _: { };
        getSubModules = null;
        substSubModules = _: null;
        nestedTypes = { };
        functor = defaultFunctor name;
        typeMerge = combine type.functor;
      }
      // given;
    in
    type;

  noun = name: description: attrs:
    mkOptionType (attrs // { inherit name description; descriptionClass = "noun"; });

  # A value that is one thing: several definitions must agree.
  scalar =
    name: description: check:
    noun name description {
      inherit check;
      merge = lib.options.mergeEqualOption;
    };

  # Gives a type that was made already another functor.
  mergedBy = functor: { inherit functor; typeMerge = combine functor; };

  # The functor of a type that is made from a plain value.
  madeFrom = name: make: payload: {
    inherit name payload;
    type = make;
    binOp = a: b: if a == b then a else null;
  };

  # A type around another, whose sub-options lie below `part`.
  around =
    inner: part: rebuild: attrs:
    mkOptionType (
      {
        inherit (inner) getSubModules;
        getSubOptions = prefix: inner.getSubOptions (prefix ++ part);
        substSubModules = modules: rebuild (inner.substSubModules modules);
        nestedTypes.elemType = inner;
        functor = {
          inherit (attrs) name;
          payload = inner;
          type = rebuild;
          binOp = a: b: a.typeMerge b.functor;
        };
      }
      // attrs
    );

  addCheck = type: accept: type // { check = v: type.check v && accept v; };
  restrict =
    base: accept: name: description:
    addCheck base accept // { inherit name description; };
}
