package closure

import (
	"context"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/nixeval"
)

// Host connects to a node. *remote.Host implements it.
type Host interface {
	Conn(ctx context.Context) (*remote.Conn, error)
	Config() remote.Config
}

// Copier copies closures. The zero value works. Its methods may be used for many nodes at the same
// time; the caller limits their number.
type Copier struct {
	Run        nixeval.Runner // starts local programs; nil: nixeval.Exec
	Send       event.Sink
	NixOptions [][2]string // for the local Nix, passed as --option

	// Substitute lets the node fetch paths from its own caches. Nix passes settings of the
	// local user, such as substituters in ~/.config/nix, to a daemon that trusts the user.
	// They then replace the node's settings.
	Substitute bool

	// Dir is the folder for sockets, which exist during a copy. If it is empty, or too long
	// for a socket's path, a temporary folder is used.
	Dir string

	known  closures
	socket string // path of the node's daemon socket, for tests
}

// Stats is what a copy has transferred.
type Stats struct {
	Paths    int   // number of paths that the node was missing
	Bytes    int64 // their size, unpacked
	Closure  int64 // size of the whole closure; 0 if nothing was missing
	Fallback bool  // the server forbids forwarding, so ssh made a second login
}

// Copy copies the closures of output paths to a node. The error is an [*Error]
// if Nix failed; errors of the connection are passed on.
func (c *Copier) Copy(ctx context.Context, node string, h Host, paths []string) (Stats, error) {
	return c.copyClosures(ctx, node, h, paths, "--no-check-sigs")
}

// Missing returns the paths that Copy would transfer, and their size. It changes nothing on the
// node.
func (c *Copier) Missing(ctx context.Context, node string, h Host, paths []string) ([]string, int64, error) {
	conn, err := h.Conn(ctx)
	if err != nil {
		return nil, 0, err
	}
	m, err := c.findMissing(ctx, node, conn, paths)
	return m.paths, m.bytes, err
}

func (c *Copier) copyClosures(ctx context.Context, node string, h Host, paths []string, flags ...string) (Stats, error) {
	conn, err := h.Conn(ctx)
	if err != nil {
		return Stats{}, err
	}
	m, err := c.findMissing(ctx, node, conn, paths)
	if err != nil || len(m.paths) == 0 {
		return Stats{}, err
	}
	t := &transfer{c: c, node: node, conn: conn, cfg: h.Config(), paths: paths, flags: flags, missing: m}
	fallback, err := t.run(ctx)
	return Stats{Paths: len(m.paths), Bytes: m.bytes, Closure: m.closureSize(), Fallback: fallback}, err
}

func (c *Copier) runLocal(ctx context.Context, cmd nixeval.Command) ([]byte, error) {
	if c.Run == nil {
		return nixeval.Exec(ctx, cmd)
	}
	return c.Run(ctx, cmd)
}

// nixFlags returns the flags of every local Nix command.
func (c *Copier) nixFlags() []string {
	flags := []string{"--extra-experimental-features", "nix-command flakes", "--log-format", "internal-json"}
	for _, o := range c.NixOptions {
		flags = append(flags, "--option", o[0], o[1])
	}
	return flags
}

// daemonSocket is the socket of a node's Nix daemon.
const daemonSocket = "/nix/var/nix/daemon-socket/socket"

func (c *Copier) remoteSocket() string {
	if c.socket != "" {
		return c.socket
	}
	return daemonSocket
}
