// Package vault keeps the secrets that nixbench makes itself: tokens, the
// certificates of a cluster's authorities, keys that sign.
//
// They are made before anything boots, so what is public of them, such as the hash of an
// authority's public key, is a fact that systems can be evaluated with, and no node
// waits for what another one prints.
//
// Which there are, the hive's modules say: a key of deployment.keys whose source is
// `generated` names a secret, its kind, and the part of it that the node gets. The
// vault makes a secret when it is first asked for, and from then on gives the same one.
// It knows nothing of who uses them.
//
// A secret is one file in a folder that only its owner can read, written whole or not at
// all. Whoever has the state's lock may make new ones.
package vault
