package program

import "syscall"

// setDeathSignal makes the kernel send a signal to the program when nixbench is killed.
func setDeathSignal(a *syscall.SysProcAttr, s syscall.Signal) { a.Pdeathsig = s }
