// Package hostkeys checks the key that an SSH server shows. For a machine that nixbench has booted, it compares the key
// with the pinned keys. For other hosts, it reads the user's known_hosts files as OpenSSH does, including hashed names,
// ports, revoked keys and certificate authorities.
//
//	c, err := hostkeys.NewChecker(cfg, acceptNew, known)
//	config := &ssh.ClientConfig{HostKeyCallback: c.Check, HostKeyAlgorithms: c.Algorithms()}
//
// An unknown key is an [*UnknownError], unless new keys are accepted; a changed or revoked key is always a [*ChangedError].
// The user is never asked about a key. One [KnownHosts] reads the files once for all nodes.
package hostkeys
