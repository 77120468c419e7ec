// Package sshconfig determines how to connect to a host. A [Target] is the requested host. Resolve combines it with the
// user's OpenSSH configuration, which `ssh -G` prints, to a [Config].
// Settings that Config lacks have no effect, such as forwarded ports and agents, and passwords: public keys are the only way to
// log in.
package sshconfig
