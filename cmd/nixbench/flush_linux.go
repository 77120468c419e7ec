package main

import "golang.org/x/sys/unix"

// discardInput discards what the user typed on a terminal before a question. It does nothing to a pipe.
func discardInput(fd int) { _ = unix.IoctlSetInt(fd, unix.TCFLSH, unix.TCIFLUSH) }
