// Package flake has the tests of flake.nix, package.nix and templates/: with the mini
// NixOS in nixpkgs' place, whose builders of programs build nothing. What a real build
// depends on beyond that is the hash of the Go modules, which is computed here.
package flake
