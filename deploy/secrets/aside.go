package secrets

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/remote"
)

// Aside says for how long a node keeps what an upload replaces or removes, so that it
// can be put back. See aside.sh.
type Aside int

const (
	Drop Aside = iota // not at all; nor what an upload before kept: there is no way back any more
	Keep              // until the switch to come is through: if it is taken back, so are the keys
	Hold              // until the run is: PutBack or Forget ends it
	Add               // likewise, after the switch
)

func (a Aside) word() string { return [...]string{"drop", "keep", "hold", "add"}[a] }

// asideFolder is known to the node's half of package activate, too: keysAside. It is
// beside the keys because NixOS has memory there that is never swapped out.
const asideFolder = "/run/keys/.nixbench-before"

// asideTimeout bounds what needs no keys to be sent.
const asideTimeout = 30 * time.Second

// Undo puts back what was kept or held for a switch that has not come about. It does
// nothing on a node that has seen to it by itself.
func (u *Uploader) Undo(ctx context.Context, node string, h Host) error {
	return u.tell(ctx, node, h, "undo", "put back keys")
}

// PutBack puts back what was held, whatever has been switched meanwhile.
func (u *Uploader) PutBack(ctx context.Context, node string, h Host) error {
	return u.tell(ctx, node, h, "restore", "put back keys")
}

// Forget removes what was held.
func (u *Uploader) Forget(ctx context.Context, node string, h Host) error {
	return u.tell(ctx, node, h, "forget", "forget old keys")
}

func (u *Uploader) tell(ctx context.Context, node string, h Host, mode, what string) error {
	ctx, cancel := context.WithTimeout(ctx, asideTimeout)
	defer cancel()
	until, _ := ctx.Deadline()
	wait := u.Send.Wait(event.Event{Node: node, Phase: event.Keys, Text: what, Until: until})
	defer wait.End()
	conn, err := h.Conn(ctx)
	if err == nil {
		err = conn.Run(ctx, remote.Cmd{Argv: u.command(mode, Drop), Name: what, Stdin: strings.NewReader(script), Sudo: true})
	}
	var failed *remote.RunError
	if err == nil || errors.As(err, &failed) { // which names node and step
		return err
	}
	return fmt.Errorf("%s: %s: %w", node, what, err)
}
