package ui

import (
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// echo switches the echo of the terminal off while live lines are on it, because typed keys would tear them. The methods of a nil echo
// do nothing.
type echo struct {
	fd      int
	signals chan os.Signal // signals that stop or end nixbench

	mu     sync.Mutex
	before *unix.Termios // the settings with echo; nil: the echo is not switched off
	keep   bool          // do not switch it off any more
}

func newEcho(terminal *os.File) *echo {
	e := &echo{fd: int(terminal.Fd()), signals: make(chan os.Signal, 1)}
	signal.Notify(e.signals, syscall.SIGTSTP, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	go e.restoreAtSignals()
	return e
}

// restoreAtSignals switches the echo on before Ctrl-Z stops nixbench. After Ctrl-C the echo stays on, because the next Ctrl-C ends
// nixbench at once.
func (e *echo) restoreAtSignals() {
	for s := range e.signals {
		e.mu.Lock()
		e.restore()
		if s == syscall.SIGTSTP {
			// Stop, until a shell continues nixbench. The kernel ignores this signal if there is no such shell. A signal that Go has once
			// handled, as SIGTSTP, stops no process any more.
			_ = syscall.Kill(os.Getpid(), syscall.SIGTTOU)
		} else {
			e.keep = true
			signal.Stop(e.signals)
		}
		e.mu.Unlock()
	}
}

// set switches the echo on or off.
func (e *echo) set(on bool) {
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case on:
		e.restore()
	case e.keep || e.before != nil || !e.inForeground():
	default:
		before, err := unix.IoctlGetTermios(e.fd, getTermios)
		if err != nil {
			return
		}
		quiet := *before
		if quiet.Lflag &^= unix.ECHO; unix.IoctlSetTermios(e.fd, setTermios, &quiet) == nil {
			e.before = before
		}
	}
}

func (e *echo) restore() {
	if e.before != nil && e.inForeground() {
		_ = unix.IoctlSetTermios(e.fd, setTermios, e.before)
	}
	e.before = nil
}

// inForeground reports whether the terminal accepts settings from nixbench. The kernel stops a background job that changes them.
func (e *echo) inForeground() bool {
	group, err := unix.IoctlGetInt(e.fd, unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}
