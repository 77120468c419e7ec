// Package closure copies store paths to a node: systems that were built locally, or
// derivations that the node builds itself.
//
// The copier connects to the node's Nix daemon over the existing SSH connection, and speaks
// the daemon's protocol. It first checks whether the paths are valid on the node. If they
// are, their closures are valid too: one round trip suffices, and no local Nix process is
// started. Otherwise one local process describes the closures of all expected paths, and
// the node's daemon reports which of them are missing.
//
// If sshd forbids connections to the daemon's socket, the copier starts `nix-daemon --stdio` on the node, which makes the connection.
//
// `nix copy` transfers the paths through a local socket that is forwarded to the daemon. If the copier can read the
// files of the local store itself, it does not start `nix copy`: it sends the files to the daemon
// ([daemon.Conn.AddPaths]). This saves one process per node.
//
// After an interrupted copy there are no incomplete paths on the node: a path becomes valid when it has been received
// completely, and the next Copy transfers the other paths. Copied paths are not protected: a garbage collection on the node may delete
// them until a profile refers to them. The [*Error] contains the cause and a hint for the user.
package closure
