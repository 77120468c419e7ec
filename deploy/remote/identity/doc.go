// Package identity loads the private keys that a login offers: from files, from an ssh-agent, and with certificates, in
// OpenSSH's order. Encrypted keys must be in the agent. Passwords and GSSAPI are not supported.
package identity
