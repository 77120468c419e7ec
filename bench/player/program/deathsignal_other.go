//go:build !linux

package program

import "syscall"

// setDeathSignal does nothing: only Linux ends a program when nixbench is killed.
func setDeathSignal(*syscall.SysProcAttr, syscall.Signal) {}
