# The hive of the tests. The virtual machines of a test have no network, so nothing can be built in them: the systems are
# built before the test, and this hive gives nixbench their store paths. nixbench evaluates everything else.
#
# test.json has the nixpkgs, the platform, the system of each unit, the modules of each node, and other attributes of
# the hive (common.nix).
let
  test = builtins.fromJSON (builtins.readFile ./test.json);
in
{
  meta.name = "test";
  meta.nixpkgs = import (/. + test.nixpkgs) { inherit (test) system; };
  defaults =
    { lib, name, ... }:
    {
      # The option is read-only, so a second declaration replaces its value. For Nix, realising an existing store path is the
      # same as building a derivation whose output exists.
      options.system.build.toplevel = lib.mkOption {
        apply = _: {
          inherit (test) system;
          drvPath = test.systems.${name};
          outPath = test.systems.${name};
        };
      };
      config = {
        networking.hostName = lib.mkDefault name;
        system.stateVersion = "25.05";
      };
    };
}
// builtins.mapAttrs (name: modules: {
  imports = modules;
  deployment.targetHost = name;
}) test.nodes
// test.hive
