// Package closure brings store paths to a node: the systems that were built
// here, or what the node needs in order to build them itself.
//
//	c := &closure.Copier{Send: send}
//	stats, err := c.Copy(ctx, "web-1", host, []string{toplevel})
//
// The node is asked first. Where the paths are valid, so are their closures, and
// that one round trip is all: no Nix process starts here. Else the closure is
// read from the local store, once for all nodes that get the same one, and the
// node says which of its paths it misses.
//
// They travel in one `nix copy` to the node's own Nix daemon, whose socket is
// forwarded over the SSH connection that is there already. A server that forbids
// forwarding costs a second login: `nix copy` then runs ssh itself, with a
// configuration made of what we know about the host, pinned keys included.
//
// A copy that ends early leaves no half of a path: each one is valid when it has
// arrived in full, and the next Copy goes on with the rest. An [*Error] says why
// it ended and what to do.
//
// What was copied is not ours to keep: a garbage collection on the node may
// take it until a profile has it. Protect bridges that time.
package closure
