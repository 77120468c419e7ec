package ui

import "golang.org/x/sys/unix"

// DiscardInput discards what the user typed on a terminal before a question. It does nothing to a pipe.
func DiscardInput(fd int) { _ = unix.IoctlSetInt(fd, unix.TCFLSH, unix.TCIFLUSH) }
