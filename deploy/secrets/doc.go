// Package secrets brings deployment.keys to their nodes.
//
// Load gathers a node's keys, all of them before anything is sent; Upload brings
// the node in line with them over one command, and Plan says what Upload would do:
//
//	u := &secrets.Uploader{Send: sink}
//	pre, err := u.Load(ctx, "web-1", unit.Deployment, secrets.Pre)
//	result, err := u.Upload(ctx, host, pre)
//	… activate …
//	post, err := u.Load(ctx, "web-1", unit.Deployment, secrets.Post)
//	result, err = u.Upload(ctx, host, post)
//
// # The exchange
//
// The command is a shell script without secrets (upload.sh). It reads from stdin
// what the node should have, with a hash of each key, and answers which it lacks;
// then it gets those, each by its length, so that a key may hold anything. Nothing
// but stdin ever carries a key: not argv, not the environment, no log or error.
//
// A key is written to a temporary file of mode 0600 beside its place, checked
// against its hash, given its owner, then its mode, and renamed. So whoever reads
// the path sees the old key or the new one, and nobody sees it early. A folder that
// is missing is made with mode 0755, as Colmena makes it, and /run/keys as NixOS has
// it, with 0750 and the group keys; folders that are there stay as they are.
//
// # Owners
//
// A pre-activation key may belong to a user whom the activation is about to make.
// It then stays root's with mode 0600, and counts as Deferred: the module keys.nix
// sets its owner and mode at the end of the activation. For a post-activation key
// a missing user is an error.
//
// # Taking back
//
// Keys come before the switch that they are for, and the switch may be taken back. So
// the node keeps what an upload replaces in a folder of root's beside them, in memory
// ([Aside], aside.sh), with a script that puts it back. Whoever goes back runs that: the
// node by itself, without a connection; [Uploader.Undo] where the switch never began; the
// upload itself, where it breaks off; and [Uploader.PutBack] where a whole run is taken
// back. Once the new system stays, the folder goes: an old secret is not to outlive its
// use. Should we be killed between upload and switch, the folder stays for the next
// upload, which does not replace what is in it: the oldest is what the running system had.
//
// # Removal
//
// The node keeps a list of the keys that it got from us, by path
// (/var/lib/nixbench/keys). Those which the hive has no more are removed when Post
// or All is uploaded, since until the new system is active the old one may need
// them; Pre reports them as Stale. What is not in the list is never removed.
package secrets
