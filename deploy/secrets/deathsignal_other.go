//go:build !linux

package secrets

import "syscall"

// setDeathSignal does nothing: only Linux ends a program when nixbench is killed.
func setDeathSignal(*syscall.SysProcAttr, syscall.Signal) {}
