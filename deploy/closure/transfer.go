package closure

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/nixeval"
	"github.com/nixbench/nixbench/nixeval/nixlog"
)

// transfer is one `nix copy` to one node.
type transfer struct {
	*link
	cfg     remote.Config
	paths   []string
	flags   []string
	missing missing

	log *nixlog.Reader
}

// run copies the paths. fallback means that the server forbids forwarding, so a second login was used.
func (t *transfer) run(ctx context.Context) (fallback bool, err error) {
	dir, err := makePrivateDir(t.c.Dir)
	if err != nil {
		return false, t.newError(t.missing.stepName(), err)
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "nix")
	forward, err := t.conn.ForwardUnix(ctx, socket, t.c.remoteSocket(t.node))
	switch {
	case err == nil:
		defer forward.Close()
		// Close the forward when ctx ends: while Nix waits for the daemon to accept more data, Nix
		// does not handle signals.
		defer context.AfterFunc(ctx, func() { forward.Close() })()
		return false, t.runNixCopy(ctx, "unix://"+socket, nil)
	case !errors.Is(err, remote.ErrForwardingProhibited):
		return false, t.newSocketError(err)
	}
	t.c.Send.Send(event.Event{Kind: event.Message, Phase: event.Copy, Node: t.node, Level: "warning",
		Text: t.node + " forbids forwarding of unix sockets, so nix copy logs in once more with ssh; AllowStreamLocalForwarding yes in its sshd configuration (services.openssh.settings) avoids this"})
	alias, opts, err := writeSSHConfig(dir, t.cfg)
	if err != nil {
		return true, t.newError(t.missing.stepName(), err)
	}
	return true, t.runNixCopy(ctx, "ssh-ng://"+alias, []string{"env", "NIX_SSHOPTS=" + opts})
}

// runNixCopy runs nix copy to a store URL. It ends nix copy if the connection is lost.
func (t *transfer) runNixCopy(ctx context.Context, to string, env []string) error {
	argv := slices.Concat(env, []string{"nix", "copy"}, t.c.nixFlags(), []string{"--to", to, "--no-check-sigs"}, t.flags)
	if t.c.Substitute {
		// The flag and the setting are both necessary, so that the daemon fetches paths from caches: older versions of Nix
		// ignore the flag and send the setting to the daemon.
		argv = append(argv, "--substitute-on-destination", "--option", "builders-use-substitutes", "true")
	}
	argv = slices.Concat(argv, []string{"--"}, t.paths)
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() {
		select {
		case <-t.conn.Done():
			stop(t.conn.Err()) // report the error of the connection; that of nix copy would only be "end of file"
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

var noLoginRE = regexp.MustCompile(`cannot open connection|failed to start SSH`)

// newCopyError returns the error of a failed nix copy, with the number of copied paths, which stay on
// the node.
func (t *transfer) newCopyError(ctx context.Context, argv []string, err error) error {
	e := newNixError(t.node, event.Copy, t.missing.stepName(), argv, err, t.log)
	if e.Argv == nil { // no number of paths and no hint: the run was cancelled, or the connection was lost
		addLostHint(e)
		return e
	}
	said := t.log.Output()
	t.addCopyReason(ctx, e, said, t.missing, t.queryRemaining(ctx))
	if noLoginRE.MatchString(said) && len(t.log.Plain) > 0 {
		e.Err = fmt.Errorf("ssh: %s", t.log.Plain[len(t.log.Plain)-1])
	}
	return e
}

// queryRemaining returns the paths that are still missing on the node. It asks the node, since Nix's log
// also counts data in transit.
func (t *transfer) queryRemaining(ctx context.Context) missing {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	paths, err := t.runQuery(ctx, t.missing.paths)
	if err != nil {
		return t.missing
	}
	return newMissing(t.missing.infos, paths)
}

// newSocketError returns the error for a daemon socket that cannot be reached.
func (t *transfer) newSocketError(err error) error {
	e := t.newError(t.missing.stepName(), err)
	switch {
	case errors.Is(err, os.ErrPermission), errors.Is(err, os.ErrNotExist) && t.conn.User() != "root":
		e.hint = daemonAccessHint(t.node, t.conn.User())
	case errors.Is(err, os.ErrNotExist):
		e.hint = "start the Nix daemon on the node: systemctl start nix-daemon.socket"
	}
	return e
}

// maxDir is the maximal length of the folder for sockets in bytes. The path of a Unix socket is limited
// to 107 bytes on Linux and 103 on other systems.
const maxDir = 70

var plainPathRE = regexp.MustCompile(`^/[A-Za-z0-9/._-]*$`)

// makePrivateDir creates a folder with mode 0700 for sockets and the ssh configuration. The folder's
// path must be short, and must not contain spaces or quotes: Nix splits NIX_SSHOPTS at every space, and
// some versions of Nix interpret quotes in it.
func makePrivateDir(preferred string) (string, error) {
	for _, base := range []string{preferred, os.TempDir(), "/tmp"} {
		if base == "" || len(base) > maxDir || !plainPathRE.MatchString(base) {
			continue
		}
		if base == preferred {
			if err := os.MkdirAll(base, 0o700); err != nil {
				return "", err
			}
		}
		return os.MkdirTemp(base, "nixbench-")
	}
	return "", errors.New("there is no folder for sockets: TMPDIR is too long")
}

func formatCount(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
