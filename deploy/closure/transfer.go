package closure

import (
	"cmp"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/nixeval"
	"github.com/nixbench/nixbench/nixeval/nixlog"
)

// runNixCopy copies the closures of paths with `nix copy`, through a local socket that is forwarded to the node's daemon. It ends nix
// copy if the connection to the node is lost.
func (l *link) runNixCopy(ctx context.Context, paths, flags []string, m pathSet) error {
	// A new folder has mode 0700. The path of a socket must be short, so the default is not $TMPDIR.
	dir, err := os.MkdirTemp(cmp.Or(l.c.Dir, "/tmp"), "nixbench-")
	if err != nil {
		return newError(l.node, m.stepName(), err, "")
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "nix")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return newError(l.node, m.stepName(), err, "")
	}
	stopForward := l.conn.Forward(listener, l.dial)
	defer stopForward()
	// Close the forwarded socket when ctx ends. A signal is not enough: while Nix waits for the daemon to accept more
	// data, Nix does not handle signals.
	defer context.AfterFunc(ctx, stopForward)()
	argv := slices.Concat([]string{"nix", "copy"}, nixeval.Flags(l.c.NixOptions),
		[]string{"--log-format", "internal-json", "--to", "unix://" + socket, "--no-check-sigs"}, flags)
	if l.c.Substitute {
		// Let the daemon fetch paths from caches. Both the flag and the setting are necessary: older versions of Nix
		// ignore the flag, but send the setting to the daemon.
		argv = append(argv, "--substitute-on-destination", "--option", "builders-use-substitutes", "true")
	}
	argv = slices.Concat(argv, []string{"--"}, paths)
	running, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	// Report the error of the connection, because the error of nix copy would only be "end of file".
	defer context.AfterFunc(l.conn.Context(), func() { stop(l.conn.Err()) })()
	run := l.c.Run
	if run == nil {
		run = nixeval.Exec
	}
	log := &nixlog.Log{Send: func(ev event.Event) {
		switch ev.Kind {
		case event.CopyStart:
			l.done.start(ev.Path)
		case event.CopyEnd:
			l.done.add(1, m.size(ev.Path))
		}
	}}
	_, err = run(running, nixeval.Command{Argv: argv, Stderr: log.HandleLine})
	if err == nil {
		return nil
	}
	if lost := l.conn.Err(); lost != nil && ctx.Err() == nil {
		err = lost
	}
	if !errors.As(err, new(*exec.ExitError)) { // the run was cancelled, the connection was lost, or Nix is not installed
		return l.newCopyError(m, err, 0, "", "")
	}
	if n := len(log.Errors); n > 0 {
		err = errors.New(firstLine(log.Errors[n-1].Raw))
	}
	// Ask the node's daemon which paths are still missing, because Nix's log also counts data that was sent but not received.
	copied := 0
	if left, err := l.queryInvalid(ctx, m.paths); err == nil {
		copied = len(m.paths) - len(left)
	}
	return l.newCopyError(m, err, copied, "command: "+strings.Join(argv, " "), log.Output())
}
