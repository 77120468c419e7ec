package closure

import (
	"context"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/remote"
)

// rootsDir holds links that garbage collections on the node respect. In /run, a
// deployment that was given up holds on to its closure until the next boot only.
const rootsDir = "/run/nixbench/gcroots"

const protectScript = `mkdir -p "$1" && nix-store --realise "$3" --add-root "$1/$2" >/dev/null`

// Protect keeps a path from being collected on the node until the same name
// protects another one, or the next boot. After a copy nothing else does: the
// daemon guards what it receives only while the copy lasts, and with waves it can
// be long until the profile has it. It needs root.
func (c *Copier) Protect(ctx context.Context, node string, h Host, name, path string) error {
	conn, err := h.Conn(ctx)
	if err != nil {
		return err
	}
	argv := []string{"sh", "-c", protectScript, "sh", rootsDir, name, path}
	if err := conn.Run(ctx, remote.Cmd{Argv: argv, Name: "link " + rootsDir + "/" + name, Sudo: true}); err != nil {
		return &Error{Node: node, Phase: event.Copy, Step: "protect " + path, Err: err}
	}
	return nil
}
