// Package state stores what nixbench records about a cluster between runs, in `.nixbench/<cluster>/` beside the hive:
//
//	lock           locked while a command changes nodes; contains the holder of the lock
//	state.json     each node's current and previous system, and its open intents
//	runtime.json   the facts of the last apply
//	known_hosts    the host keys of the cluster's machines, for OpenSSH
//	exchanged      the digest of the state that was last exported or imported here
//	secrets/       see package keys; and the secrets generated for deployment.keys
//	gcroots/       garbage collector roots of the deployed closures
//	runs/<id>/     the records of runs, see package runs
//
// To read, use a [Dir]. To write, take the [Lock] first. The lock opens the [Store], which writes the state.
//
// After a process was killed, all files are complete, the lock is free, and state.json contains the intents of the process.
//
// The folder contains a .gitignore that matches the folder itself. If a flake is not in a git repository, Nix copies its whole folder
// into the store, where all users can read it. The state of such a flake is therefore under $XDG_STATE_HOME.
package state
