// Package deploy has the end-to-end tests of `nixbench apply` and `nixbench exec`:
// the program as users have it, real Nix, and the lab's machines. What a test
// asserts about a node it asks the node, over OpenSSH.
//
// Like all tests of the lab they are skipped unless NIXBENCH_E2E=1.
package deploy
