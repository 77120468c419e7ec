// Package state is what nixbench remembers of a cluster between runs, in
// `.nixbench/<cluster>/` beside the hive:
//
//	lock           held while a command changes nodes; names its holder
//	state.json     what each node runs, ran before, and what was begun on it
//	runtime.json   the facts of the last apply
//	known_hosts    the host keys of our machines, for OpenSSH
//	secrets/       the key that we log in to them with, and their private host keys
//	gcroots/       what keeps closures from being collected
//	runs/<id>/     run.json, plan.json, events.jsonl, nodes/<name>.log
//
// Who reads starts from a [Dir]. Who writes takes the [Lock] first, which gives the
// [Store] for the state and the [Recorder] for the run:
//
//	lock, err := dir.Lock(ctx, state.Self("apply"))
//	store, err := lock.Store()
//	rec, err := lock.Record(state.RunInfo{…})
//	store.Begin(state.Intent{Run: rec.ID(), Node: "web-1", Step: "activate", Path: …})
//	… the effect …
//	store.Update(func(s *state.State) error { s.Confirm("web-1", …); s.Finish(…); return nil })
//	rec.End(0, nil)
//
// A process that is killed leaves whole files, a free lock, its intents, and a record
// without an end.
//
// The folder ignores itself in git. A flake outside git is copied into the
// world-readable store with everything beside it, so for those the state lives
// under $XDG_STATE_HOME instead.
package state
