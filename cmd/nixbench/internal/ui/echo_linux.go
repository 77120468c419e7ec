package ui

import "golang.org/x/sys/unix"

const getTermios, setTermios = unix.TCGETS, unix.TCSETS

// DiscardInput discards what the user typed on a terminal before a question. It does nothing to a pipe.
func DiscardInput(fd int) { _ = unix.IoctlSetInt(fd, unix.TCFLSH, unix.TCIFLUSH) }
