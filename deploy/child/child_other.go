//go:build !linux

// Package child ends the child processes of nixbench when nixbench is killed.
package child

import "syscall"

// SetDeathSignal does nothing: only Linux ends a child process when nixbench is killed.
func SetDeathSignal(*syscall.SysProcAttr, syscall.Signal) {}
