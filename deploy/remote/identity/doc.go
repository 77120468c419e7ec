// Package identity loads the private keys that a login offers: from files, from an ssh-agent, and with certificates, in
// OpenSSH's order.
//
// A passphrase is asked for when a server accepts the key, and once per [Keyring]. Passwords and GSSAPI are not supported.
package identity
