package remote

import (
	"context"
	"time"

	"golang.org/x/crypto/ssh"
)

// stopScript sends the signal $1 to the process groups whose ids are the other arguments. If no process group has an
// id, it sends the signal to the process with this id.
const stopScript = `s=$1; shift; for p; do kill -s "$s" -- "-$p" 2>/dev/null || kill -s "$s" "$p" 2>/dev/null; done; :`

// stopProcesses ends a cancelled command. Closing the session is not enough, since sshd then only closes the command's pipes. If the
// command runs as root, sshd also refuses to send signals to it. So stopProcesses also sends the signals with kill in a second session.
func (r *runningCommand) stopProcesses(ended <-chan error) {
	go r.session.Signal(ssh.SIGTERM)
	go r.signalProcesses("TERM", termGrace)
	select {
	case <-ended:
		return
	case <-time.After(termGrace):
	}
	go r.session.Signal(ssh.SIGKILL)
	r.signalProcesses("KILL", killGrace)
}

// signalProcesses sends a signal to the command's processes over another session. It first waits until the process ids
// are known. patience is the time limit for everything.
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
	// If the command runs as root, kill runs as root too, since a user may not signal root's
	// processes. sudo may run the command in a separate process group, so both groups are signalled.
	argv := []string{"sh", "-c", stopScript, "sh", signal, r.first}
	started := r.hasStarted()
	if started && r.second != r.first {
		argv = append(argv, r.second)
	}
	// Ignore the error, since there is no other way to end the command.
	_ = r.conn.runUncounted(ctx, Cmd{Argv: argv, Sudo: r.cmd.Sudo && started}, false)
}
