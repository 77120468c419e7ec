package closure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/closure/daemon"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/nixeval/nixlog"
)

// link is a connection to a node and to its Nix daemon.
type link struct {
	c      *Copier
	node   string
	conn   *remote.Conn
	daemon *daemon.Conn
	stop   func() bool
	done   *progress // progress of the copy; nil before the copy starts
	warned int       // number of warnings of the daemon
}

const (
	// maxReplies is the maximum total size of a node daemon's replies in bytes. The records of 100,000 paths have about 50 MiB.
	maxReplies = 64 << 20

	// replyTimeout is the time limit of a node's Nix daemon for the handshake and for a query. For example, a daemon that cannot write
	// to /nix/var does not answer: it assumes that another daemon manages the store, and connects to its own socket again and again.
	replyTimeout = time.Minute

	maxWarnings = 100 // number of a daemon's warnings that are shown for a copy
)

// openLink connects to the node's Nix daemon. The connection is closed when ctx ends.
func (c *Copier) openLink(ctx context.Context, node string, h Host) (*link, error) {
	conn, err := h.Conn(ctx)
	if err != nil {
		return nil, err
	}
	l := &link{c: c, node: node, conn: conn}
	socket, err := l.dial(ctx)
	if err == nil {
		l.stop = context.AfterFunc(ctx, func() { socket.Close() })
		if err = l.shakeHands(socket); err == nil {
			return l, nil
		}
		l.stop()
		socket.Close()
	}
	e := l.newError("connect to the Nix daemon", l.explain(ctx, err))
	switch text := err.Error(); {
	case strings.Contains(text, "Permission denied"), strings.Contains(text, "not allowed to connect"):
		e.hint = daemonAccessHint(node, conn.User())
	case errors.As(err, new(*remote.RunError)):
		e.hint = "a node needs Nix, with nix-daemon on the PATH of a login that is not interactive; if it has Nix, see systemctl status nix-daemon.socket"
	}
	return nil, e
}

// dial connects to the socket of the node's Nix daemon. If that is not possible, for example because sshd forbids it
// (AllowStreamLocalForwarding no), dial starts `nix-daemon --stdio` on the node. This program connects to the socket;
// as root, it opens the store itself.
func (l *link) dial(ctx context.Context) (io.ReadWriteCloser, error) {
	socket, err := l.conn.DialUnix(ctx, l.c.remoteSocket(l.node))
	if err == nil || ctx.Err() != nil || l.conn.Err() != nil {
		return socket, err
	}
	return l.conn.DialCommand(remote.Cmd{Argv: []string{"nix-daemon", "--stdio"}}), nil
}

func (l *link) shakeHands(socket io.ReadWriteCloser) error {
	return l.askOn(socket, func() (err error) {
		if l.daemon, err = daemon.Open(socket, maxReplies); err != nil {
			return err
		}
		l.daemon.Log = l.handleMessage
		if options := l.c.daemonOptions(); len(options) > 0 {
			err = l.daemon.SetOptions(options)
		}
		return err
	})
}

func (l *link) close() {
	l.stop()
	l.daemon.Close()
}

// ask calls an operation of the node's daemon. If the daemon does not answer in time, ask disconnects it and returns a [silentError].
func (l *link) ask(operation func() error) error { return l.askOn(l.daemon, operation) }

func (l *link) askOn(conn io.Closer, operation func() error) error {
	limit := l.c.replyLimit()
	wait := l.c.Send.Wait(event.Event{Node: l.node, Phase: event.Copy, Text: "an answer of the node's Nix daemon", Until: time.Now().Add(limit)})
	defer wait.End()
	timer := time.AfterFunc(limit, func() { conn.Close() })
	err := operation()
	if !timer.Stop() {
		return &silentError{limit}
	}
	return err
}

func (c *Copier) replyLimit() time.Duration { return cmp.Or(c.patience, replyTimeout) }

type silentError struct{ limit time.Duration }

func (e *silentError) Error() string {
	return fmt.Sprintf("the node's Nix daemon does not answer within %v; see journalctl -u nix-daemon on the node", e.limit)
}

// daemonOptions returns the Nix options that concern the node.
func (c *Copier) daemonOptions() [][2]string {
	return slices.DeleteFunc(slices.Clone(c.NixOptions), func(o [2]string) bool {
		return o[0] == "experimental-features" || o[0] == "extra-experimental-features" || o[0] == "plugin-files" || o[0] == "store"
	})
}

// handleMessage handles a log message of the node's daemon.
func (l *link) handleMessage(m daemon.Message) {
	text, isWarning := strings.CutPrefix(strings.TrimSpace(nixlog.StripANSI(m.Text)), "warning: ")
	switch {
	case m.Path != "" && l.done == nil:
	case m.Path != "" && m.Done:
		l.done.complete(m.Path)
	case m.Path != "":
		l.done.start(m.Path)
	case isWarning && !isAboutSettings(text) && l.warned < maxWarnings:
		l.warned++
		l.c.Send.Send(event.Event{Kind: event.Message, Phase: event.Copy, Node: l.node, Level: "warning", Text: text})
	}
}

// stream copies the paths over the connection to the daemon. If Copier.Substitute is set, the node first fetches from
// its caches the paths that they have.
func (l *link) stream(ctx context.Context, m missing) error {
	defer context.AfterFunc(ctx, func() { l.daemon.Close() })()
	l.done = newProgress(l.c.Send, l.node, m)
	left := m.paths
	var err error
	if l.c.Substitute {
		var valid []string
		valid, err = l.daemon.QueryValidPaths(left, true)
		left = without(left, valid)
	}
	if err == nil {
		infos := make([]*daemon.PathInfo, len(left))
		for i, p := range left {
			infos[i] = m.infos[p]
		}
		err = l.daemon.AddPaths(infos, func(path string, bytes int64) {
			if bytes == 0 {
				l.done.start(path)
			}
			l.done.update(path, bytes)
		}, func(path string) {
			left = left[1:]
			l.done.complete(path)
		})
	}
	if err == nil {
		l.done.finish()
		return nil
	}
	e, printed := l.newError(m.stepName(), l.explain(ctx, err)), ""
	if reported := (*daemon.Error)(nil); errors.As(err, &reported) && len(left) > 0 && ctx.Err() == nil {
		printed = nixlog.StripANSI(reported.Message)
		e.Err = fmt.Errorf("the Nix daemon reports for %s: %s", left[0], firstLine(printed))
		if firstLine(printed) != printed {
			e.Stderr = printed
		}
	}
	l.addCopyReason(ctx, e, printed, m, newMissing(m.infos, left))
	return e
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
		case <-l.conn.Done():
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
