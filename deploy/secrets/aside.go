package secrets

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/remote"
)

// Aside selects how long a node keeps a backup of the keys that an upload replaces or removes. See aside.sh.
type Aside string

const (
	Drop Aside = ""     // no backup; an earlier upload's backup is deleted too
	Keep Aside = "keep" // keep the backup until the next switch has ended; a rollback of the switch restores the keys
	Hold Aside = "hold" // keep the backup until the run has ended: PutBack restores the keys, or DropBackup deletes the backup
	Add  Aside = "add"  // like Hold, for an upload after the switch
	Late Aside = "late" // like Keep, for the second upload before the same switch: if it fails, the keys of the first upload stay
)

// asideFolder is the path of the folder on the node with the backup of replaced keys. The shell scripts of package activate
// use the same path (keysAside). The folder is in /run/keys because NixOS mounts memory there that is never swapped out.
const asideFolder = "/run/keys/.nixbench-before"

// asideTimeout is the time limit for commands that send no keys.
const asideTimeout = 30 * time.Second

// Undo restores the keys from the node's backup if the switch was not executed. If the node has already restored the keys or
// deleted the backup, it does nothing.
func (u *Uploader) Undo(ctx context.Context, node string, h Host) error {
	return u.runMode(ctx, node, h, "undo", "restore keys")
}

// PutBack restores the keys from the node's backup. Unlike Undo, it also does so after the switch has ended.
func (u *Uploader) PutBack(ctx context.Context, node string, h Host) error {
	return u.runMode(ctx, node, h, "restore", "restore keys")
}

// DropBackup deletes the backup of replaced keys on the node.
func (u *Uploader) DropBackup(ctx context.Context, node string, h Host) error {
	return u.runMode(ctx, node, h, "forget", "delete the key backup")
}

// runMode runs upload.sh on the node in a mode without new keys: "undo", "restore" or "forget". what describes the step for errors.
func (u *Uploader) runMode(ctx context.Context, node string, h Host, mode, what string) error {
	ctx, cancel := context.WithTimeout(ctx, asideTimeout)
	defer cancel()
	until, _ := ctx.Deadline()
	wait := u.Send.Wait(event.Event{Node: node, Phase: event.Keys, Text: what, Until: until})
	defer wait.End()
	conn, err := h.Conn(ctx)
	if err == nil {
		err = conn.Run(ctx, remote.Cmd{Argv: u.scriptCommand(mode, Drop, false), Name: what, Stdin: strings.NewReader(script), Sudo: true})
	}
	var failed *remote.RunError
	if err == nil || errors.As(err, &failed) { // without another prefix: a RunError contains the node and the step already
		return err
	}
	return failure.On(node, fmt.Errorf("%s: %w", what, err))
}
