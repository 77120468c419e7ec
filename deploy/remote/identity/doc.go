// Package identity loads the private keys that a login offers: from files, from an ssh-agent, and with certificates, in
// OpenSSH's order.
//
// The user is asked for the passphrase of a key when a server accepts the key, and only once per [Keyring]. Passwords
// and GSSAPI are not supported.
package identity
