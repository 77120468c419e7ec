package closure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/nixeval/daemon"
	"github.com/nixbench/nixbench/nixeval/nixlog"
)

// link is a connection to a node and to its Nix daemon.
type link struct {
	c      *Copier
	node   string
	conn   *remote.Conn
	daemon *daemon.Conn
	done   *progress // progress of the copy; nil before the copy starts
}

const (
	// maxReplies is the maximum total size of a node daemon's replies in bytes. The records of 100,000 paths have about 50 MiB.
	maxReplies = 64 << 20

	// replyTimeout is the time limit of a node's Nix daemon for the handshake and for a query. For example, a daemon that cannot write
	// to /nix/var does not answer: it assumes that another daemon manages the store, and connects to its own socket again and again.
	replyTimeout = time.Minute
)

// withLink connects to the node's Nix daemon, and calls do. The connection is closed when do ends, or when ctx ends.
func (c *Copier) withLink(ctx context.Context, node string, h remote.Connector, do func(*link) error) error {
	conn, err := h.Conn(ctx)
	if err != nil {
		return err
	}
	l := &link{c: c, node: node, conn: conn}
	socket, err := l.dial(ctx)
	if err == nil {
		defer socket.Close()
		defer context.AfterFunc(ctx, func() { socket.Close() })()
		err = l.askOn(socket, func() (err error) {
			l.daemon, err = daemon.Open(socket, maxReplies)
			return err
		})
	}
	if err == nil {
		return do(l)
	}
	advice := ""
	switch text := err.Error(); {
	case strings.Contains(text, "Permission denied"), strings.Contains(text, "not allowed to connect"):
		advice = fmt.Sprintf("log in as root, or let %[1]q use the Nix daemon: it must be in nix.settings.allowed-users and "+
			"nix.settings.trusted-users of %[2]s, and its socket must be open to it", conn.User(), node)
	case errors.As(err, new(*remote.RunError)):
		advice = "a node needs Nix, with nix-daemon on the PATH of a login that is not interactive; if it has Nix, see systemctl status nix-daemon.socket"
	}
	return newError(node, "connect to the Nix daemon", l.explain(ctx, err), advice)
}

// dial connects to the socket of the node's Nix daemon. If that is not possible, for example because sshd forbids it
// (AllowStreamLocalForwarding no), dial starts `nix-daemon --stdio` on the node. This program connects to the socket;
// as root, it opens the store itself.
func (l *link) dial(ctx context.Context) (net.Conn, error) {
	address := daemonSocket
	if l.c.socket != nil {
		address = l.c.socket(l.node)
	}
	socket, err := l.conn.Dial(ctx, "unix", address)
	if err == nil || ctx.Err() != nil || l.conn.Err() != nil {
		return socket, err
	}
	return l.conn.DialCommand(context.WithoutCancel(ctx), remote.Cmd{Argv: []string{"nix-daemon", "--stdio"}, Unlimited: true}), nil
}

// ask calls an operation of the node's daemon. If the daemon does not answer in time, ask disconnects it and returns an error.
func (l *link) ask(operation func() error) error { return l.askOn(l.daemon, operation) }

func (l *link) askOn(conn io.Closer, operation func() error) error {
	limit := cmp.Or(l.c.patience, replyTimeout)
	wait := l.c.Send.Wait(event.Event{Node: l.node, Phase: event.Copy, Text: "an answer of the node's Nix daemon", Until: time.Now().Add(limit)})
	defer wait.End()
	timer := time.AfterFunc(limit, func() { conn.Close() })
	err := operation()
	if !timer.Stop() {
		return fmt.Errorf("the node's Nix daemon does not answer within %v; see journalctl -u nix-daemon on the node", limit)
	}
	return err
}

// stream copies the paths over the connection to the daemon. If Copier.Substitute is set, the node first fetches from
// its caches the paths that they have.
func (l *link) stream(ctx context.Context, m pathSet) error {
	defer context.AfterFunc(ctx, func() { l.daemon.Close() })()
	left := m.paths
	var err error
	if l.c.Substitute {
		l.daemon.Fetch = func(path string, done bool) {
			if done {
				l.done.add(1, m.size(path))
			} else {
				l.done.start(path)
			}
		}
		var valid []string
		valid, err = l.daemon.QueryValidPaths(left, true)
		left = without(left, valid)
	}
	if err == nil {
		infos := make([]*daemon.PathInfo, len(left))
		for i, p := range left {
			infos[i] = m.infos[p]
		}
		err = l.daemon.AddPaths(infos, l.done.start, func(bytes int) { l.done.add(0, int64(bytes)) }, func() {
			left = left[1:]
			l.done.add(1, 0)
		})
	}
	if err == nil {
		return nil
	}
	cause, printed := l.explain(ctx, err), ""
	if reported := (*daemon.Error)(nil); errors.As(err, &reported) && len(left) > 0 && ctx.Err() == nil {
		printed = nixlog.StripANSI(reported.Message)
		cause = fmt.Errorf("the Nix daemon reports for %s: %s", left[0], firstLine(printed))
	}
	return l.newCopyError(m, cause, len(m.paths)-len(left), "", printed)
}

// explain returns the reason for an error of the daemon's connection: the run was cancelled, the connection to the
// node was lost, or the daemon has reported an error or has ended.
func (l *link) explain(ctx context.Context, err error) error {
	var reported *daemon.Error
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &reported):
		return errors.New(firstLine(nixlog.StripANSI(reported.Message)))
	}
	ended := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
	if ended {
		// When the connection to the node is lost, its channels, such as the daemon's, end a moment before the connection.
		select {
		case <-l.conn.Context().Done():
		case <-time.After(lostDelay):
		}
	}
	if lost := l.conn.Err(); lost != nil {
		return lost
	}
	if ended {
		return errors.New("the node's Nix daemon has closed the connection; see journalctl -u nix-daemon on the node")
	}
	return err
}

// lostDelay is how long explain waits, after a channel has ended, to see whether the SSH connection was lost.
const lostDelay = 200 * time.Millisecond

// findMissing returns the paths of the closures that the node does not have. It first asks whether the node has
// the argument paths themselves. If a path is valid, its whole closure is valid. So the local store is not read if the node is up
// to date.
func (l *link) findMissing(ctx context.Context, paths []string) (missing pathSet, stats Stats, err error) {
	invalid, err := l.queryInvalid(ctx, paths)
	if err != nil || len(invalid) == 0 {
		return missing, stats, err
	}
	all, err := l.c.readClosure(ctx, l.node, paths)
	if err == nil {
		invalid, err = l.queryInvalid(ctx, all.paths)
	}
	missing = pathSet{invalid, all.infos}
	return missing, Stats{len(invalid), missing.bytes(), all.bytes()}, err
}

// queryInvalid returns those of the paths that are not in the node's store. It keeps the order of the paths.
func (l *link) queryInvalid(ctx context.Context, paths []string) ([]string, error) {
	var valid []string
	err := l.ask(func() (err error) {
		valid, err = l.daemon.QueryValidPaths(paths, false)
		return err
	})
	if err != nil {
		return nil, newError(l.node, "query the missing paths", l.explain(ctx, err), "")
	}
	return without(paths, valid), nil
}

// without returns the elements of paths that are not in drop. It keeps the order of the elements.
func without(paths, drop []string) []string {
	isDropped := map[string]bool{}
	for _, p := range drop {
		isDropped[p] = true
	}
	return slices.DeleteFunc(slices.Clone(paths), func(p string) bool { return isDropped[p] })
}

// rootsDir is the node's folder for garbage collector roots. It is in /run, so that an
// abandoned deployment protects its closure only until the next boot.
const rootsDir = "/run/nixbench/gcroots"

const linkScript = `mkdir -p "$1" && ln -sfn "$3" "$1/$2"`

// protect calls copy. Unless name is empty, it then links the path in rootsDir, and starts only one small program on the node for it.
// Before, it protects the path until the link l is closed, so that a garbage collection that runs at this moment does not delete the
// path.
func (l *link) protect(ctx context.Context, path, name string, copy func() error) error {
	if name == "" {
		return copy()
	}
	if err := l.ask(func() error { return l.daemon.AddTempRoot(path) }); err != nil {
		return newError(l.node, "protect "+path, l.explain(ctx, err), "")
	}
	if err := copy(); err != nil {
		return err
	}
	root := rootsDir + "/" + name
	run := func(argv ...string) error {
		return l.conn.Run(ctx, remote.Cmd{Argv: argv, Name: "link " + root, Sudo: true})
	}
	err := run("ln", "-sfn", path, root)
	if errors.As(err, new(*remote.RunError)) { // the folder does not exist
		err = run("sh", "-c", linkScript, "sh", rootsDir, name, path)
	}
	if err == nil {
		if err = l.ask(func() error { return l.daemon.AddIndirectRoot(root) }); err != nil {
			err = l.explain(ctx, err)
		}
	}
	if err != nil {
		return newError(l.node, "protect "+path, err, "")
	}
	return nil
}
