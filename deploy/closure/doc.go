// Package closure copies store paths to a node: systems that were built locally, or
// derivations that the node builds itself.
//
// The copier connects to the node's Nix daemon over the existing SSH connection, and speaks the daemon's protocol. If paths are
// missing, one local process describes the closures of all expected paths. If sshd forbids connections to the daemon's socket, the
// copier starts `nix-daemon --stdio` on the node. If the copier cannot read the files of the local store itself, `nix copy` transfers the paths
// through a local socket that is forwarded to the daemon.
//
// After an interrupted copy there are no incomplete paths on the node: a path becomes valid when it has been received
// completely, and the next Copy transfers the other paths. Copied paths are not protected: a garbage collection on the node may delete
// them until a profile refers to them. The [*Error] contains the cause and a hint for the user.
package closure
