// Package state is what nixbench remembers of a cluster between runs, in
// `.nixbench/<cluster>/` beside the hive: roots that keep closures from being
// collected and the facts of the last apply.
//
// The folder ignores itself in git. A flake outside git is copied into the
// world-readable store with everything beside it, so for those the state lives
// under $XDG_STATE_HOME instead.
package state
