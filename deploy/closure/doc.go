// Package closure copies store paths to a node: systems that were built locally, or
// derivations that the node builds itself.
//
//	c := &closure.Copier{Send: send}
//	stats, err := c.Copy(ctx, "web-1", host, []string{toplevel})
//
// The copier first checks whether the paths are valid on the node. If they are, their
// closures are valid too: one round trip suffices, and no local Nix process is started.
// Otherwise the copier reads the closure from the local store, once for all nodes that
// get the same closure, and determines which of its paths are missing on the node.
//
// One `nix copy` transfers the missing paths to the node's Nix daemon, whose socket is
// forwarded over the existing SSH connection. If the server forbids forwarding,
// `nix copy` runs ssh itself, with a generated configuration that includes the pinned
// host keys. This requires a second login.
//
// After an interrupted copy there are no incomplete paths on the node: a path becomes
// valid when it has been received completely, and the next Copy transfers the rest. The
// [*Error] contains the cause and a hint for the user.
//
// Copied paths are not protected: a garbage collection on the node may delete them
// until a profile refers to them. Protect prevents the deletion.
package closure
