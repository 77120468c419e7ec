// Package hostkeys checks the key that an SSH server shows. For a machine that nixbench has booted, it compares the key
// with the pinned keys. For other hosts, it reads the user's known_hosts files as OpenSSH does, including hashed names,
// ports, revoked keys and certificate authorities.
//
// An unknown key is an [*UnknownError], unless new keys are accepted; a changed or revoked key is always a [*ChangedError].
// The user is never asked about a key.
package hostkeys
