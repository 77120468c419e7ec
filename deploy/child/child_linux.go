// Package child ends the child processes of nixbench when nixbench is killed.
package child

import "syscall"

// SetDeathSignal makes the kernel send a signal to a child process when nixbench is killed.
func SetDeathSignal(a *syscall.SysProcAttr, s syscall.Signal) { a.Pdeathsig = s }
