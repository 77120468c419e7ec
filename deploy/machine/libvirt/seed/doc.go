// Package seed generates the files that give a machine its identity at its first boot: systemd credentials,
// and the NoCloud disk for images with cloud-init. All functions are pure.
//
// The files contain the machine's private host key and must not be readable by other users.
package seed
