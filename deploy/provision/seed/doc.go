// Package seed is what a machine is told at its first boot, as files: systemd's credentials,
// and the NoCloud disk for images with cloud-init. All is a function of its arguments.
//
// What it makes holds the machine's private host key. Files have to be kept from anybody else.
package seed
