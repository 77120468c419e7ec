// Package sshconfig determines how to connect to a host. A [Target] is the requested host. Resolve combines it with the
// user's OpenSSH configuration, which `ssh -G` prints, to a [Config]:
//
//	cfg, err := sshconfig.Resolve(ctx, sshconfig.Target{Name: "web-1", Host: "web-1.example"})
//
// Resolve returns an error if a configuration forbids public keys. Other unsupported settings are listed in Config.Warnings.
// CheckPrograms finds options of a hive with which ssh would run a program on this computer.
package sshconfig
