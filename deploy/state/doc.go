// Package state stores what nixbench records about a cluster between runs, in
// `.nixbench/<cluster>/` beside the hive:
//
//	lock           held while a command changes nodes; contains the holder
//	state.json     each node's current and previous system, and its open intents
//	runtime.json   the facts of the last apply
//	known_hosts    the host keys of the cluster's machines, for OpenSSH
//	secrets/       the client key for logging in to the machines, and their private host keys
//	gcroots/       garbage collector roots of the deployed closures
//	runs/<id>/     run.json, plan.json, events.jsonl, nodes/<name>.log
//
// To read, use a [Dir]. To write, take the [Lock] first. It opens the [Store] for the
// state and the [Recorder] for the run:
//
//	lock, err := dir.Lock(ctx, state.Self("apply"))
//	store, err := lock.Store()
//	rec, err := lock.Record(state.RunInfo{…})
//	store.Begin(state.Intent{Run: rec.ID(), Node: "web-1", Step: "activate", Path: …})
//	… activate the system …
//	store.Update(func(s *state.State) error { s.Confirm("web-1", …); s.Finish(…); return nil })
//	rec.End(0, nil)
//
// After a process was killed, all files are complete, the lock is free, the intents of the
// process are in state.json, and its run's record has no end.
//
// The folder contains a .gitignore that matches the folder itself. Nix copies a flake outside
// of git into the world-readable store with everything beside it. The state of such a flake
// is therefore under $XDG_STATE_HOME.
package state
