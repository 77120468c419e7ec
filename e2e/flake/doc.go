// Package flake has the tests of flake.nix, package.nix and templates/. They use the mini
// NixOS instead of nixpkgs, so no program is really built. A real build also depends on
// the hash of the Go modules, which a test computes.
package flake
