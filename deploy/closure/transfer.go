package closure

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/nixeval"
	"github.com/nixbench/nixbench/nixeval/nixlog"
)

// transfer is one `nix copy` to one node.
type transfer struct {
	*link
	paths   []string
	flags   []string
	missing missing

	log *nixlog.Reader
}

// run copies the paths through a local socket that is forwarded to the node's daemon.
func (t *transfer) run(ctx context.Context) error {
	dir, err := makePrivateDir(t.c.Dir)
	if err != nil {
		return t.newError(t.missing.stepName(), err)
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "nix")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return t.newError(t.missing.stepName(), err)
	}
	forward := t.conn.Forward(listener, t.dial)
	defer forward.Close()
	// Close the forwarded socket when ctx ends. A signal is not enough: while Nix waits for the daemon to accept more
	// data, Nix does not handle signals.
	defer context.AfterFunc(ctx, func() { forward.Close() })()
	return t.runNixCopy(ctx, "unix://"+socket)
}

// runNixCopy runs nix copy to a store URL. It ends nix copy if the connection to the node is lost.
func (t *transfer) runNixCopy(ctx context.Context, to string) error {
	argv := slices.Concat([]string{"nix", "copy"}, t.c.nixFlags(), []string{"--to", to, "--no-check-sigs"}, t.flags)
	if t.c.Substitute {
		// Let the daemon fetch paths from caches. Both the flag and the setting are necessary: older versions of Nix
		// ignore the flag, but send the setting to the daemon.
		argv = append(argv, "--substitute-on-destination", "--option", "builders-use-substitutes", "true")
	}
	argv = slices.Concat(argv, []string{"--"}, t.paths)
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() {
		select {
		case <-t.conn.Done():
			stop(t.conn.Err()) // report the error of the connection, because the error of nix copy would only be "end of file"
		case <-ctx.Done():
		}
	}()
	t.done = newProgress(t.c.Send, t.node, t.missing)
	t.log = t.done.newLog()
	_, err := t.c.runLocal(ctx, nixeval.Command{Argv: argv, Stderr: t.log.HandleLine})
	if err == nil {
		t.done.finish()
		return nil
	}
	if lost := t.conn.Err(); lost != nil && ctx.Err() == nil {
		err = lost
	}
	return t.newCopyError(ctx, argv, err)
}

// newCopyError returns the error of a failed nix copy. It mentions the number of copied paths, because these paths stay on the node.
func (t *transfer) newCopyError(ctx context.Context, argv []string, err error) error {
	e := newNixError(t.node, event.Copy, t.missing.stepName(), argv, err, t.log)
	if e.Argv == nil { // the run was cancelled or the connection was lost: add no number of paths and no hint
		addLostHint(e)
		return e
	}
	said := t.log.Output()
	t.addCopyReason(ctx, e, said, t.missing, t.queryRemaining(ctx))
	return e
}

// queryRemaining returns the paths that are still missing on the node. It asks the node's daemon, because Nix's log
// also counts data that was sent but not received.
func (t *transfer) queryRemaining(ctx context.Context) missing {
	paths, err := t.queryInvalid(ctx, t.missing.paths)
	if err != nil {
		return t.missing
	}
	return newMissing(t.missing.infos, paths)
}

// maxDir is the maximal length of the folder for sockets in bytes. The path of a Unix socket is limited
// to 107 bytes on Linux and 103 on other systems.
const maxDir = 70

var plainPathRE = regexp.MustCompile(`^/[A-Za-z0-9/._-]*$`)

// makePrivateDir creates a folder with mode 0700 for a socket. The path of the folder must be short, see maxDir.
func makePrivateDir(base string) (string, error) {
	if base = cmp.Or(base, os.TempDir()); len(base) > maxDir || !plainPathRE.MatchString(base) {
		base = "/tmp"
	}
	if err := os.MkdirAll(base, 0o700); err != nil {
		return "", err
	}
	return os.MkdirTemp(base, "nixbench-")
}

func formatCount(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
