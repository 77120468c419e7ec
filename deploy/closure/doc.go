// Package closure copies store paths to a node: systems that were built locally, or
// derivations that the node builds itself.
//
//	c := &closure.Copier{Send: send}
//	stats, err := c.Copy(ctx, "web-1", host, []string{toplevel})
//
// The copier first checks whether the paths are valid on the node. If so, their
// closures are valid too: one round trip suffices, and no local Nix process is started.
// Otherwise it reads the closure from the local store, once for all nodes that get the
// same one, and determines which of its paths are missing on the node.
//
// One `nix copy` transfers them to the node's own Nix daemon, whose socket is
// forwarded over the existing SSH connection. If the server forbids forwarding,
// `nix copy` runs ssh itself, with a generated configuration that includes the pinned
// host keys. This costs a second login.
//
// An interrupted copy leaves no incomplete paths: a path becomes valid when it has
// arrived completely, and the next Copy transfers the rest. The [*Error] contains the
// cause and what to do.
//
// Copied paths are not protected: a garbage collection on the node may delete them
// until a profile refers to them. Protect prevents that.
package closure
