package ui

import "golang.org/x/sys/unix"

// DiscardInput discards what the user typed on a terminal before a question. It does nothing to a pipe.
func DiscardInput(fd int) {
	const input = 1 // FREAD of sys/fcntl.h
	_ = unix.IoctlSetPointerInt(fd, unix.TIOCFLUSH, input)
}
