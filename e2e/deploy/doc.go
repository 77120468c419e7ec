// Package deploy has the end-to-end tests of `nixbench apply` and `nixbench exec`,
// with the real program, real Nix, and the lab's machines. Tests check nodes over OpenSSH,
// independently of nixbench.
//
// Like all tests of the lab they are skipped unless NIXBENCH_E2E=1.
package deploy
