# Error messages for mistakes of users: { expr, expected lines of the error }.
{
  lib ? import ../lib,
}:
let
  inherit (lib) mkOption types;
  value = modules: (lib.evalModules { inherit modules; }).config.x;
  x = type: { options.x = mkOption { inherit type; }; };
  from = file: value: { _file = file; config.x = value; };
in
{
  unknown = {
    expr = value [ (x types.int) { _file = "/hive.nix"; config = { x = 1; foo.bar = "typo"; }; } ];
    expected = "The option `foo' does not exist. Definition values:\n- In `/hive.nix':";
  };
  unknownNested = {
    expr = (lib.evalModules { modules = [ { options.foo.baz = mkOption { default = 1; }; } { _file = "/hive.nix"; foo.bar = true; } ]; }).config.foo.baz;
    expected = "The option `foo.bar' does not exist. Definition values:\n- In `/hive.nix': true";
  };
  unknownInSubmodule = {
    expr = lib.deepSeq (value [ (x (types.attrsOf (types.submodule { options.a = mkOption { default = 1; }; }))) (from "/hive.nix" { one.typo = 1; }) ]) 1;
    expected = "The option `x.one.typo' does not exist. Definition values:\n- In `/hive.nix': 1";
  };
  noOptions = {
    expr = (lib.evalModules { modules = [ { _file = "/m.nix"; config.x = 1; } ]; }).config.x;
    expected = "The option `x' does not exist. Definition values:\n- In `/m.nix': 1";
  };
  wrongType = {
    expr = value [ (x types.bool) (from "/hive.nix" "str") ];
    expected = "A definition for option `x' is not of type `boolean'. Definition values:\n- In `/hive.nix': \"str\"";
  };
  wrongElement = {
    expr = lib.deepSeq (value [ (x (types.listOf types.port)) (from "/hive.nix" [ 22 70000 ]) ]) 1;
    expected = "A definition for option `x.\"[definition 1-entry 2]\"' is not of type `16 bit unsigned integer; between 0 and 65535 (both inclusive)'. Definition values:\n- In `/hive.nix': 70000";
  };
  conflict = {
    expr = value [ (x types.str) (from "/a.nix" "a") (from "/b.nix" "b") ];
    expected = "The option `x' has conflicting definition values:\n- In `/b.nix': \"b\"\n- In `/a.nix': \"a\"\nUse `lib.mkForce value` or `lib.mkDefault value` to change the priority on any of these definitions.";
  };
  undefined = {
    expr = value [ (x types.str) ];
    expected = "The option `x' was accessed but has no value defined. Try setting the option.";
  };
  readOnly = {
    expr = value [ { _file = "/o.nix"; options.x = mkOption { readOnly = true; type = types.int; default = 1; }; } (from "/a.nix" 2) ];
    expected = "The option `x' is read-only, but it's set multiple times. Definition values:\n- In `/o.nix': 1\n- In `/a.nix': 2";
  };
  uniqueTwice = {
    expr = value [ (x types.raw) (from "/a.nix" 1) (from "/b.nix" 2) ];
    expected = "The option `x' is defined multiple times while it's expected to be unique.";
  };
  declaredTwice = {
    expr = value [
      { _file = "/a.nix"; options.x = mkOption { type = types.int; default = 1; }; }
      { _file = "/b.nix"; options.x = mkOption { type = types.int; default = 2; }; }
    ];
    expected = "The option `x' in `/a.nix' is already declared in `/b.nix'.";
  };
  parentOption = {
    expr = value [ { _file = "/a.nix"; options.x = mkOption { type = types.int; }; } { _file = "/b.nix"; options.x.y = mkOption { }; } ];
    expected = "The option `x' in module `/a.nix' would be a parent of the following options, but its type `signed integer' does not support nested options.\n - option(s) with prefix `x.y' in module `/b.nix'";
  };
  mixedSyntax = {
    expr = value [ { options.x = mkOption { }; x = 1; } ];
    expected = "has an unsupported attribute `x'.";
  };
  nullAndNot = {
    expr = value [ (x (types.nullOr types.int)) (from "/a.nix" null) (from "/b.nix" 1) ];
    expected = "The option `x` is defined both null and not null, in `/b.nix' and `/a.nix'.";
  };
  conditions = {
    expr = value [ (x types.int) (from "/a.nix" (lib.mkIf "yes" 1)) ];
    expected = "mkIf";
  };
  anythingMixed = {
    expr = value [ (x types.anything) (from "/a.nix" 1) (from "/b.nix" "s") ];
    expected = "The option `x' has conflicting option types in `/b.nix' and `/a.nix'";
  };
  removed = {
    expr = (lib.evalModules { modules = [ (lib.mkRemovedOptionModule [ "x" ] "Use y.") { options.assertions = mkOption { }; config.x = 1; } ]; }).config.x;
    expected = "The option `x' can no longer be used since it's been removed. Use y.";
  };
  nestedLists = {
    expr = value [ { imports = [ [ { x = 1; } ] ]; } ];
    expected = "Module imports can't be nested lists.";
  };
  bareType = {
    expr = value [ { _file = "/a.nix"; options.x = types.int; } ];
    expected = "In module /a.nix: expected an option declaration at option path `x` but got an attribute set with type option-type";
  };
  recursion = {
    expr = value [ (x types.int) ({ config, ... }: { config.x = config.x; }) ];
    expected = "infinite recursion encountered";
  };
  recursionInImports = {
    expr = value [ (x types.int) ({ config, ... }: { imports = lib.optional (config.x == 1) { }; }) ];
    expected = "infinite recursion encountered";
  };
  missingArgument = {
    expr = value [ (x types.int) ({ nobody, ... }: { x = nobody; }) ];
    expected = "attribute 'nobody' missing";
  };
}
