package closure

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/nixeval"
)

// Copier copies closures. The zero value works. Its methods may be called concurrently for many nodes; the caller
// should limit the number of concurrent calls.
type Copier struct {
	Run        nixeval.Runner    // starts local programs; nil: nixeval.Exec
	Start      nixeval.StartFunc // starts the local nix-daemon; nil: nixeval.StartPipe
	Send       event.Sink
	NixOptions [][2]string // for the local Nix, passed as --option

	// Substitute allows the node to fetch paths from its own caches, with its own settings.
	Substitute bool

	Dir string // an existing folder for the sockets of running copies; empty: /tmp

	records records

	// The fields socket and patience are for tests.
	socket   func(node string) string // path of the socket of a node's Nix daemon; nil: daemonSocket for all nodes
	patience time.Duration            // used instead of replyTimeout unless it is 0
}

// Stats are the numbers of paths that a node was missing or has received.
type Stats struct {
	Paths   int
	Bytes   int64 // unpacked size of the paths
	Closure int64 // unpacked size of the whole closure in bytes; 0 if no path was missing
}

// Copy copies the closure of an output path to a node. Unless root is empty, it also protects the path from the node's garbage
// collector, until Copy is called with the same root and another path, or until the next boot. The Nix daemon protects received
// paths only during the copy, and in a rolling update the profile of the node refers to them much later. The error is an [*Error]
// if Nix failed, and otherwise an error of the connection.
func (c *Copier) Copy(ctx context.Context, node string, h remote.Connector, path, root string) (stats Stats, err error) {
	err = c.withLink(ctx, node, h, func(l *link) error {
		return l.protect(ctx, path, root, func() error {
			stats, err = l.copyClosures(ctx, []string{path})
			return err
		})
	})
	return stats, err
}

// Missing returns what Copy would return for several paths. It does not change the node.
func (c *Copier) Missing(ctx context.Context, node string, h remote.Connector, paths []string) (stats Stats, err error) {
	err = c.withLink(ctx, node, h, func(l *link) error {
		_, stats, err = l.findMissing(ctx, paths)
		return err
	})
	return stats, err
}

// The time limit of a copy is copyTimeout, plus one second for each slowestCopy bytes.
const (
	copyTimeout = 10 * time.Minute
	slowestCopy = 16 << 10
)

// copyClosures copies the paths that the node does not have. If nixbench can read the files of these paths, it sends
// them itself. Otherwise it runs nix copy with the flags.
func (l *link) copyClosures(ctx context.Context, paths []string, flags ...string) (Stats, error) {
	m, stats, err := l.findMissing(ctx, paths)
	if err != nil || len(m.paths) == 0 {
		return Stats{}, err
	}
	limit := copyTimeout + time.Duration(stats.Bytes/slowestCopy)*time.Second
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the copy has not ended within %v", limit))
	defer cancel()
	l.done = newProgress(l.c.Send, l.node, stats)
	if isReadable(m.paths) {
		err = l.stream(ctx, m)
	} else {
		err = l.runNixCopy(ctx, paths, flags, m)
	}
	if err == nil {
		l.done.finish()
	}
	return stats, err
}

// isReadable reports whether nixbench can read the files of the paths directly, without Nix. It cannot if Nix uses
// another root folder or a store on another machine. It also cannot on macOS: if the names of two files differ only in
// upper and lower case, Nix stores one of them under another name.
func isReadable(paths []string) bool {
	return runtime.GOOS != "darwin" && durable.Exists(paths[len(paths)-1])
}

// daemonSocket is the path of the Nix daemon's socket on a node.
const daemonSocket = "/nix/var/nix/daemon-socket/socket"
