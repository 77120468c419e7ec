// Package nixeval runs Nix to evaluate and build. It converts the user's hive to Go
// values: the nodes ([Hive]), the derivation of each node's system ([Closure]), and
// the built closures in the store.
//
// The Nix code is in nix/eval.nix. It supports Colmena's hive format and adds roles,
// cluster, facts and --set. The file is embedded in the binary and passed to Nix as
// text, together with the modules that nixbench adds to every node. So nothing is
// written into the user's folder, and flakes are evaluated in pure mode.
package nixeval
