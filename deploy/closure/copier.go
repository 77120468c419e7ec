package closure

import (
	"context"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/nixeval"
)

// Host is a node as this package needs it; *remote.Host is one.
type Host interface {
	Conn(ctx context.Context) (*remote.Conn, error)
	Config() remote.Config
}

// Copier copies closures. The zero value works; its methods may be used for many
// nodes at the same time, and how many is the caller's to limit.
type Copier struct {
	Run        nixeval.Runner // starts local programs; nil: nixeval.Exec
	Send       event.Sink
	NixOptions [][2]string // for the local Nix, passed as --option

	// Substitute lets the node fetch from its own caches what it can. Nix hands
	// settings of the local user, such as substituters in ~/.config/nix, on to a
	// daemon that trusts him: they then count in place of the node's.
	Substitute bool

	// Dir is for sockets, which exist during a copy. Where it is empty, or too
	// long for a socket's path, a temporary folder serves.
	Dir string

	known  closures
	socket string // of the node's daemon, where a test has another
}

// Stats says what a copy brought.
type Stats struct {
	Paths    int   // that the node was missing
	Bytes    int64 // their size, unpacked
	Closure  int64 // the size of all that the paths need; 0 where nothing was missing
	Fallback bool  // the server forbids forwarding, so ssh had to log in once more
}

// Copy brings the closures of output paths to a node. The error is an [*Error]
// if Nix failed; errors of the connection are passed on.
func (c *Copier) Copy(ctx context.Context, node string, h Host, paths []string) (Stats, error) {
	return c.copy(ctx, node, h, paths, "--no-check-sigs")
}

// Missing tells what Copy would bring, and its size, without an effect on the
// node.
func (c *Copier) Missing(ctx context.Context, node string, h Host, paths []string) ([]string, int64, error) {
	conn, err := h.Conn(ctx)
	if err != nil {
		return nil, 0, err
	}
	m, err := c.missing(ctx, node, conn, paths)
	return m.paths, m.bytes, err
}

func (c *Copier) copy(ctx context.Context, node string, h Host, paths []string, flags ...string) (Stats, error) {
	conn, err := h.Conn(ctx)
	if err != nil {
		return Stats{}, err
	}
	m, err := c.missing(ctx, node, conn, paths)
	if err != nil || len(m.paths) == 0 {
		return Stats{}, err
	}
	t := &transfer{c: c, node: node, conn: conn, cfg: h.Config(), paths: paths, flags: flags, missing: m}
	fallback, err := t.run(ctx)
	return Stats{Paths: len(m.paths), Bytes: m.bytes, Closure: m.closure(), Fallback: fallback}, err
}

func (c *Copier) run(ctx context.Context, cmd nixeval.Command) ([]byte, error) {
	if c.Run == nil {
		return nixeval.Exec(ctx, cmd)
	}
	return c.Run(ctx, cmd)
}

// nixFlags are those that every local Nix command of ours takes.
func (c *Copier) nixFlags() []string {
	flags := []string{"--extra-experimental-features", "nix-command flakes", "--log-format", "internal-json"}
	for _, o := range c.NixOptions {
		flags = append(flags, "--option", o[0], o[1])
	}
	return flags
}

// daemonSocket is where a node's Nix daemon listens.
const daemonSocket = "/nix/var/nix/daemon-socket/socket"

func (c *Copier) remoteSocket() string {
	if c.socket != "" {
		return c.socket
	}
	return daemonSocket
}
