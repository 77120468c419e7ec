// Package nixostests has tests of nixbench in virtual machines with NixOS' test driver, which are checks of the flake, and
// the tests in Go of these tests: with a nixpkgs, they instantiate each check, check the types of its script, and evaluate
// its hives with nixbench.
package nixostests
