// Package nixeval is everything that runs Nix to evaluate or build. It takes a
// hive as the user wrote it and gives Go values: what nodes there are ([Hive]),
// what to build for them ([Closure]), and the closures in the store.
//
//	e := nixeval.New(nixeval.Options{Source: source})
//	hive, err := e.Survey(ctx)                    // names, roles, tags: one evaluation
//	closures, err := e.Instantiate(ctx, units)    // derivations: each unit once, in chunks
//	built, err := e.Build(ctx, closures, "")      // store paths: one nix-store process
//
// The Nix half is nix/eval.nix. It travels inside the binary and is handed to Nix
// as text, together with the modules of ours that every node gets, so that nothing
// is written into the user's tree and a flake stays pure. It speaks Colmena's
// format and adds roles, cluster, facts and --set.
//
// Errors are [*NixError], in Nix's own words where they are Nix's, and say which
// unit they are about: [*EvalError], [*BuildError]. Events of Nix's log go to
// Options.Send.
//
// The package imports nothing of ours but leaf packages.
package nixeval
