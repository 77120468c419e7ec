package closure

import (
	"context"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/remote"
)

// rootsDir is the node's folder for garbage collector roots of Protect. It is in /run, so that an
// abandoned deployment protects its closure only until the next boot.
const rootsDir = "/run/nixbench/gcroots"

const protectScript = `mkdir -p "$1" && nix-store --realise "$3" --add-root "$1/$2" >/dev/null`

// Protect protects a path from the node's garbage collector until Protect is called with the same name
// and another path, or until the next boot. It is needed because the Nix daemon protects received paths
// only during the copy, and in a rolling update a profile may refer to them much later. Protect runs a
// command as root.
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
