package closure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nixbench/nixbench/deploy/closure/daemon"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/nixeval/nixlog"
)

// missing is the set of a closure's paths that a node does not have.
type missing struct {
	paths []string                    // sorted: a path is behind the paths that it refers to
	bytes int64                       // unpacked size of these paths
	infos map[string]*daemon.PathInfo // of every path of the closure
}

func newMissing(infos map[string]*daemon.PathInfo, paths []string) missing {
	m := missing{paths: paths, infos: infos}
	for _, p := range paths {
		m.bytes += m.size(p)
	}
	return m
}

// size returns the unpacked size of a path of the closure in bytes.
func (m missing) size(path string) int64 { return int64(m.infos[path].NarSize) }

// closureSize returns the unpacked size of the whole closure in bytes.
func (m missing) closureSize() int64 {
	var sum int64
	for p := range m.infos {
		sum += m.size(p)
	}
	return sum
}

// maxReplies is the maximal size of what a node's daemon reports about paths: the records of 100,000 paths have about 50 MiB.
const maxReplies = 64 << 20

// link is a connection to a node and to its Nix daemon.
type link struct {
	c      *Copier
	node   string
	conn   *remote.Conn
	daemon *daemon.Conn // nil if the daemon cannot be reached through the connection, or has an unknown protocol
	stop   func() bool
	timer  *time.Timer          // disconnects the daemon if an operation takes too long; nil if there is no connection to the daemon
	late   atomic.Bool          // the timer has fired
	sent   func(daemon.Message) // receives the daemon's log messages, unless it is nil
	warned int                  // number of warnings of the daemon
}

// A copy may take answerTimeout, and a second for each slowestCopy bytes. All other operations of a link together may take
// answerTimeout.
const (
	answerTimeout = 10 * time.Minute
	slowestCopy   = 16 << 10
)

// replyTimeout is the time limit of a node's Nix daemon for the handshake and for a query. A daemon that cannot write to
// /nix/var does not answer: it takes its store for that of another daemon, and connects to itself again and again.
const replyTimeout = time.Minute

// awaitReply calls operation, which asks the node's daemon over conn. If the daemon does not answer in time, awaitReply closes
// conn and returns a [silentError].
func (c *Copier) awaitReply(node string, conn io.Closer, operation func() error) error {
	limit := cmp.Or(c.patience, replyTimeout)
	wait := c.Send.Wait(event.Event{Node: node, Phase: event.Copy, Text: "an answer of the node's Nix daemon", Until: time.Now().Add(limit)})
	defer wait.End()
	timer := time.AfterFunc(limit, func() { conn.Close() })
	err := operation()
	if !timer.Stop() {
		return &silentError{limit}
	}
	return err
}

type silentError struct{ limit time.Duration }

func (e *silentError) Error() string {
	return fmt.Sprintf("the node's Nix daemon does not answer within %v; see journalctl -u nix-daemon on the node", e.limit)
}

// openLink connects to the node's Nix daemon. If this is not possible, the link has no daemon. The daemon is
// disconnected when ctx ends.
func (c *Copier) openLink(ctx context.Context, node string, conn *remote.Conn) (*link, error) {
	l := &link{c: c, node: node, conn: conn, stop: func() bool { return true }}
	socket, err := conn.DialUnix(ctx, c.remoteSocket(node))
	if err == nil {
		l.stop = context.AfterFunc(ctx, func() { socket.Close() })
		l.timer = time.AfterFunc(answerTimeout, func() {
			l.late.Store(true)
			socket.Close()
		})
		err = c.awaitReply(node, socket, func() (err error) {
			l.daemon, err = daemon.Open(socket, maxReplies)
			return err
		})
	}
	if err == nil {
		l.daemon.Log = l.handleMessage
		if options := c.daemonOptions(); len(options) > 0 {
			err = l.daemon.SetOptions(options)
		}
	}
	switch {
	case err == nil:
		return l, nil
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case conn.Err() != nil:
		err = conn.Err()
	case errors.As(err, new(*silentError)): // the commands of link's other methods would wait for the same daemon
	default:
		l.close()
		l.daemon = nil // the commands of link's other methods explain what is wrong
		return l, nil
	}
	l.close()
	return nil, &Error{Node: node, Phase: event.Copy, Step: "connect to the Nix daemon", Err: err}
}

// daemonOptions returns the Nix options that concern the node.
func (c *Copier) daemonOptions() [][2]string {
	return slices.DeleteFunc(slices.Clone(c.NixOptions), func(o [2]string) bool {
		return o[0] == "experimental-features" || o[0] == "extra-experimental-features" || o[0] == "plugin-files" || o[0] == "store"
	})
}

func (l *link) close() {
	l.stop()
	if l.timer != nil {
		l.timer.Stop()
	}
	if l.daemon != nil {
		l.daemon.Close()
	}
}

// maxWarnings is the maximal number of a daemon's warnings that are shown for a copy.
const maxWarnings = 100

// handleMessage handles a log message of the node's daemon.
func (l *link) handleMessage(m daemon.Message) {
	text, isWarning := strings.CutPrefix(strings.TrimSpace(nixlog.StripANSI(m.Text)), "warning: ")
	switch {
	case m.Path != "" && l.sent != nil:
		l.sent(m)
	case m.Path == "" && isWarning && !isAboutSettings(text) && l.warned < maxWarnings:
		l.warned++
		l.c.Send.Send(event.Event{Kind: event.Message, Phase: event.Copy, Node: l.node, Level: "warning", Text: text})
	}
}

// findMissing returns the paths of the closures that the node does not have. It first checks the paths
// themselves: a valid path has a valid closure, so the local store is not read for an up-to-date node.
func (l *link) findMissing(ctx context.Context, paths []string) (missing, error) {
	if len(paths) == 0 {
		return missing{}, nil
	}
	invalid, err := l.queryInvalid(ctx, paths, false)
	if err != nil || len(invalid) == 0 {
		return missing{}, err
	}
	all, err := l.c.readClosure(ctx, l.node, paths)
	if err != nil {
		return missing{}, err
	}
	if invalid, err = l.queryInvalid(ctx, all.paths, false); err != nil {
		return missing{}, err
	}
	return newMissing(all.infos, invalid), nil
}

// queryInvalid returns those of the paths that are not in the node's store, in the same order. With substitute, the
// node first fetches from its caches what it can.
func (l *link) queryInvalid(ctx context.Context, paths []string, substitute bool) ([]string, error) {
	if l.daemon == nil {
		return l.c.queryInvalid(ctx, l.node, l.conn, paths)
	}
	var valid []string
	query := func() (err error) {
		valid, err = l.daemon.QueryValidPaths(paths, substitute)
		return err
	}
	var err error
	if substitute { // takes as long as the caches need
		err = query()
	} else {
		err = l.c.awaitReply(l.node, l.daemon, query)
	}
	if err != nil {
		return nil, &Error{Node: l.node, Phase: event.Copy, Step: "query the missing paths", Err: l.explain(ctx, err)}
	}
	isValid := setOf(valid)
	return slices.DeleteFunc(slices.Clone(paths), func(p string) bool { return isValid[p] }), nil
}

func setOf(list []string) map[string]bool {
	set := map[string]bool{}
	for _, s := range list {
		set[s] = true
	}
	return set
}

// explain returns the reason for an error of the daemon's connection: the run was cancelled, the connection to the
// node was lost, or the daemon has reported an error or has ended.
func (l *link) explain(ctx context.Context, err error) error {
	var reported *daemon.Error
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case l.late.Load():
		return errors.New("the node's Nix daemon did not answer in time")
	case errors.As(err, &reported):
		return errors.New(firstLine(nixlog.StripANSI(reported.Message)))
	}
	ended := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
	if ended {
		// When the connection to the node is lost, all of its channels end first.
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

// lostDelay is the maximal time between the end of a channel and the end of its connection, if that was lost.
const lostDelay = 200 * time.Millisecond

// queryInvalid is like link.queryInvalid, with a command on the node. It passes the paths on
// stdin, since thousands of paths are too long for a command line.
func (c *Copier) queryInvalid(ctx context.Context, node string, conn *remote.Conn, paths []string) ([]string, error) {
	argv := []string{"xargs", "nix-store", "--check-validity", "--print-invalid"}
	out, err := conn.Output(ctx, remote.Cmd{Argv: argv, Stdin: strings.NewReader(strings.Join(paths, "\n") + "\n"), MaxOutput: maxReplies})
	if err != nil {
		return nil, newQueryError(conn, node, err)
	}
	isInvalid := setOf(strings.Fields(string(out))) // the node may print other paths, too
	return slices.DeleteFunc(slices.Clone(paths), func(p string) bool { return !isInvalid[p] }), nil
}
