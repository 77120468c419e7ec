// Package kubernetes has the tests of modules/kubernetes: what the modules evaluate
// to, which needs only Nix, and a real cluster of the lab's machines, which is
// skipped unless NIXBENCH_E2E=1.
package kubernetes
