package closure

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/nixeval"
)

// Host connects to a node. *remote.Host implements it.
type Host interface {
	Conn(ctx context.Context) (*remote.Conn, error)
}

// Copier copies closures. The zero value works. Its methods may be called concurrently for many nodes; the caller
// should limit the number of concurrent calls.
type Copier struct {
	Run        nixeval.Runner // starts local programs; nil: nixeval.Exec
	Start      StartFunc      // starts the local nix-daemon; nil: nixeval.StartPipe
	Send       event.Sink
	NixOptions [][2]string // for the local Nix, passed as --option

	// Substitute allows the node to fetch paths from its own caches, with its own settings. If the node's daemon trusts
	// the login user, NixOptions override the settings of the node.
	Substitute bool

	// Dir is the folder for the sockets of running copies. If Dir is empty, or too long for a
	// socket's path, a temporary folder is used.
	Dir string

	records records

	// The fields socket and patience are for tests.
	socket   func(node string) string // path of the socket of a node's Nix daemon; nil: daemonSocket for all nodes
	patience time.Duration            // used instead of replyTimeout unless it is 0
}

// Stats are the numbers of a copy.
type Stats struct {
	Paths   int   // number of paths that the node was missing
	Bytes   int64 // unpacked size of the missing paths in bytes
	Closure int64 // unpacked size of the whole closure in bytes; 0 if no path was missing
}

// Copy copies the closures of output paths to a node. The error is an [*Error] if Nix failed, and
// otherwise an error of the connection.
func (c *Copier) Copy(ctx context.Context, node string, h Host, paths []string) (Stats, error) {
	return c.copyClosures(ctx, node, h, paths)
}

// CopyAndProtect copies the closure of an output path to a node. It also protects the path from the node's garbage
// collector, as Protect does.
func (c *Copier) CopyAndProtect(ctx context.Context, node string, h Host, name, path string) (Stats, error) {
	l, err := c.openLink(ctx, node, h)
	if err != nil {
		return Stats{}, err
	}
	defer l.close()
	if err := l.holdPath(ctx, path); err != nil {
		return Stats{}, err
	}
	stats, err := l.copyClosures(ctx, []string{path})
	if err == nil {
		err = l.protect(ctx, name, path)
	}
	return stats, err
}

// Missing returns the paths that Copy would transfer, and their unpacked size in bytes. It does not
// change the node.
func (c *Copier) Missing(ctx context.Context, node string, h Host, paths []string) ([]string, int64, error) {
	l, err := c.openLink(ctx, node, h)
	if err != nil {
		return nil, 0, err
	}
	defer l.close()
	m, err := l.findMissing(ctx, paths)
	return m.paths, m.bytes, err
}

// copyClosures copies the closures of paths to a node. flags are additional flags for nix copy.
func (c *Copier) copyClosures(ctx context.Context, node string, h Host, paths []string, flags ...string) (Stats, error) {
	l, err := c.openLink(ctx, node, h)
	if err != nil {
		return Stats{}, err
	}
	defer l.close()
	return l.copyClosures(ctx, paths, flags...)
}

// The time limit of a copy is copyTimeout, plus one second for each slowestCopy bytes.
const (
	copyTimeout = 10 * time.Minute
	slowestCopy = 16 << 10
)

// copyClosures copies the paths that the node does not have. If nixbench can read the files of these paths, it sends
// them itself. Otherwise it runs nix copy with the flags.
func (l *link) copyClosures(ctx context.Context, paths []string, flags ...string) (Stats, error) {
	m, err := l.findMissing(ctx, paths)
	if err != nil || len(m.paths) == 0 {
		return Stats{}, err
	}
	limit := copyTimeout + time.Duration(m.bytes/slowestCopy)*time.Second
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the copy has not ended within %v", limit))
	defer cancel()
	stats := Stats{Paths: len(m.paths), Bytes: m.bytes, Closure: m.closureSize()}
	if isReadable(m.paths) {
		return stats, l.stream(ctx, m)
	}
	return stats, (&transfer{link: l, paths: paths, flags: flags, missing: m}).run(ctx)
}

// isReadable reports whether nixbench can read the files of the paths directly, without Nix. It cannot if Nix uses
// another root folder or a store on another machine. It also cannot on macOS: if the names of two files differ only in
// upper and lower case, Nix stores one of them under another name.
func isReadable(paths []string) bool {
	if runtime.GOOS == "darwin" {
		return false
	}
	_, err := os.Lstat(paths[len(paths)-1])
	return err == nil
}

func (c *Copier) runLocal(ctx context.Context, cmd nixeval.Command) ([]byte, error) {
	if c.Run == nil {
		return nixeval.Exec(ctx, cmd)
	}
	return c.Run(ctx, cmd)
}

// nixFlags returns the flags that all local Nix commands have in common.
func (c *Copier) nixFlags() []string {
	flags := []string{"--extra-experimental-features", "nix-command flakes", "--log-format", "internal-json"}
	for _, o := range c.NixOptions {
		flags = append(flags, "--option", o[0], o[1])
	}
	return flags
}

// daemonSocket is the path of the Nix daemon's socket on a node.
const daemonSocket = "/nix/var/nix/daemon-socket/socket"

func (c *Copier) remoteSocket(node string) string {
	if c.socket != nil {
		return c.socket(node)
	}
	return daemonSocket
}
