// Package keys keeps the keys of nixbench itself in the state folder of a cluster, below `secrets/`: the SSH key with
// which nixbench logs in to the machines, the private host keys of the machines, and the key that authenticates plan
// files. For the keys that a hive deploys to its nodes (deployment.keys), see deploy/secrets.
package keys
