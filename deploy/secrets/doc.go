// Package secrets uploads deployment.keys to their nodes.
//
// Load reads all keys of a node, before any key is sent. Upload makes the node's keys equal to the loaded keys with one command: before
// the activation those of Pre, and after it those of Post. Plan reports what Upload would do.
//
// The command is a shell script without secrets; upload.sh describes the exchange. Keys are sent only through stdin, never in argv,
// the environment, a log or an error.
//
// A pre-activation key may belong to a user that the activation creates. Until then the key belongs to root: the module keys.nix sets
// the owner at the end of the activation.
//
// Keys are uploaded before their switch, and the switch may be rolled back. The node therefore keeps a backup of replaced keys in
// memory ([Aside]), with a script that every rollback runs.
//
// The node has a list of the paths of uploaded keys (/var/lib/nixbench/keys). Keys that the hive no longer has are removed when Post
// or All is uploaded; Pre only reports them as Stale, since the old system may need them. A file that is not in the list is never
// removed.
package secrets
