// Package real tests nixbench on machines that run a real NixOS, as far as it can be had without a
// binary cache: the modules, scripts and programs of a nixpkgs that the computer has, with packages
// that are links to the programs of the lab's Debian guest. docs/testing.md has a table of the parts.
//
// The tests need NIXBENCH_E2E=1 and two more variables, and are skipped without them, also with
// NIXBENCH_REQUIRE: NIXBENCH_NIXPKGS is the folder of a nixpkgs, and NIXBENCH_SWITCH its program
// switch-to-configuration. `make real` runs them.
//
// default.nix is the nixpkgs of the tests' hives: stages.nix is its standard environment, overlay.nix and
// systemd.nix are its packages, and machine.nix is the NixOS module of all machines.
package real
