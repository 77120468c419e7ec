// Package vault generates and stores secrets: tokens, certificates of a cluster's
// certificate authorities, signing keys, encryption keys.
//
// Secrets are generated before any machine boots. Their public parts, such as the hash of a CA's public key, are therefore
// available to the evaluation of systems, and no node waits for the output of another node.
//
// The hive's modules define the secrets: a key of deployment.keys whose source is `generated` contains the name of a secret, its
// kind, and the part of it that the node gets. The vault generates a secret on first use and returns the same secret afterwards.
//
// A secret is one file, written atomically, in a folder that only its owner can read. Only
// the holder of the state's lock may generate secrets.
package vault
