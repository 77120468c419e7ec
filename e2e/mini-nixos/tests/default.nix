# What `lib` must do, as { expr expected }. Gives the list of failures.
#
# Every expectation also holds for nixpkgs' own lib: pass it as `lib` to check.
{
  lib ? import ../lib,
}:
let
  cases = import ./lib.nix { inherit lib; } // import ./modules.nix { inherit lib; };
in
lib.concatLists (
  lib.mapAttrsToList (
    name: case:
    lib.optional (case.expr != case.expected) {
      inherit name;
      inherit (case) expected;
      result = case.expr;
    }
  ) cases
)
