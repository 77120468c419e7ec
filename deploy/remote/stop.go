package remote

import (
	"context"
	"time"

	"golang.org/x/crypto/ssh"
)

// stopScript signals process groups, or a process that leads no group.
const stopScript = `s=$1; shift; for p; do kill -s "$s" -- "-$p" 2>/dev/null || kill -s "$s" "$p" 2>/dev/null; done; :`

// stop ends a cancelled command. Closing the session is not enough: sshd then
// closes the command's pipes and lets it run. Signals over the session are
// refused by sshd for root, so a second session sends them as well.
func (r *runningCommand) stopProcesses(ended <-chan error) {
	go r.session.Signal(ssh.SIGTERM)
	go r.signalProcesses("TERM", termGrace)
	if hasEndedWithin(ended, termGrace) {
		return
	}
	go r.session.Signal(ssh.SIGKILL)
	r.signalProcesses("KILL", killGrace)
}

// kill signals the command's processes, waiting a while for their ids.
func (r *runningCommand) signalProcesses(signal string, patience time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	select {
	case <-r.leader:
	case <-r.ended:
		return
	case <-ctx.Done():
		return
	}
	// As root where the command is: a user may not signal root's processes.
	// sudo may run it in a group of its own, hence both.
	argv := []string{"sh", "-c", stopScript, "sh", signal, r.first}
	started := r.hasStarted()
	if started && r.second != r.first {
		argv = append(argv, r.second)
	}
	// The error is ignored, since nothing more can be done.
	_ = r.conn.run(ctx, Cmd{Argv: argv, Sudo: r.cmd.Sudo && started}, false)
}

// waitFor reports whether the command ended in time.
func hasEndedWithin(ended <-chan error, patience time.Duration) bool {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-ended:
		return true
	case <-timer.C:
		return false
	}
}
