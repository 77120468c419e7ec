// Package nixeval runs Nix to evaluate and build. It converts the user's hive to Go
// values: the nodes ([Hive]), the derivation of each node's system ([Closure]), and
// the built closures in the store.
//
//	e := nixeval.New(nixeval.Options{Source: source})
//	hive, err := e.Survey(ctx)                      // names, roles, tags: one evaluation
//	closures, err := e.Instantiate(ctx, units, nil) // derivations: each unit once, in chunks
//	built, err := e.Build(ctx, closures, "")        // store paths: one nix-store process
//
// [Builds] builds units while others are still being evaluated.
//
// The Nix code is in nix/eval.nix. It supports Colmena's hive format and adds roles,
// cluster, facts and --set. The file is embedded in the binary and passed to Nix as
// text, together with the modules that nixbench adds to every node. So nothing is
// written into the user's folder, and flakes are evaluated in pure mode.
//
// Errors about the hive are [*NixError], with the message of Nix or of eval.nix.
// [*EvalError] and [*BuildError] contain the units that failed. Events from Nix's log
// are sent to Options.Send.
package nixeval
