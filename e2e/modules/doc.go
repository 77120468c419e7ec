// Package modules tests what the modules of machines evaluate to: with the mini NixOS, and also with a real nixpkgs if
// NIXBENCH_NIXPKGS is the path of one. The Kubernetes modules have more tests in e2e/kubernetes.
package modules
