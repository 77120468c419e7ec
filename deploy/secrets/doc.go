// Package secrets uploads deployment.keys to their nodes.
//
// Load reads all keys of a node, before any key is sent. Upload makes the node's keys equal
// to the loaded keys with one command. Plan reports what Upload would do:
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
// The command is a shell script without secrets (upload.sh). It reads the list of
// desired keys with a hash of each from stdin, and prints which keys are missing.
// Then it reads the missing keys as a tar archive, so that a key may contain any
// bytes and one program writes all of them. Keys are sent only through stdin, never in
// argv, the environment, a log or an error.
//
// The script writes a key to a temporary file of mode 0600 in the key's folder, compares
// the file with the hash, sets the owner, then the mode, and renames the file. A reader of
// the path therefore sees either the old key or the new key, and other users cannot read
// the temporary file. Most of the time of an upload is spent on starting programs.
// Therefore each step except the last is one program for all keys, or for all keys with the
// same owner and mode. If a step fails, the script repeats the steps for each key alone, so
// that the error is about one key.
//
// A missing folder is created with mode 0755 as in Colmena, and /run/keys with mode 0750
// and the group keys as in NixOS. Existing folders are not changed.
//
// # Owners
//
// A pre-activation key may belong to a user that the activation creates. Until then the key
// belongs to root with mode 0600, and the result lists it as Deferred: the module
// keys.nix sets the key's owner and mode at the end of the activation. For a
// post-activation key a missing user is an error.
//
// # Rollback
//
// Keys are uploaded before their switch, and the switch may be rolled back. The node
// therefore keeps a backup of replaced keys in memory, in a folder that only root can read
// ([Aside], aside.sh), with a script that restores the keys. Every rollback runs that
// script: the node when it rolls back without a connection; [Uploader.Undo] if the switch
// was not started; the upload if it fails; and [Uploader.PutBack] if a whole run is rolled
// back.
// When the new system is permanent, the backup is deleted, so that old secrets are not
// kept longer than necessary. If the client is killed between upload and switch, the
// backup remains, and the next upload does not overwrite it, because the backup contains
// the keys of the running system.
//
// # Removal
//
// The node has a list of the paths of uploaded keys (/var/lib/nixbench/keys). Keys
// that the hive no longer has are removed when Post or All is uploaded; Pre only
// reports them as Stale, since the old system may need them until the new one is
// active. A file that is not in the list is never removed. A key that another tool has
// uploaded is not sent again if its content, owner and mode are the desired ones; it is only
// added to the list.
package secrets
