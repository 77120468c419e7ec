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
	Hold Aside = "hold" // keep the backup until the run has ended: EndBackup restores the keys, or deletes the backup
	Add  Aside = "add"  // like Hold, for an upload after the switch
	Late Aside = "late" // like Keep, for the second upload before the same switch: if it fails, the keys of the first upload stay
)

// asideFolder is the path of the folder on the node with the backup of replaced keys. The shell scripts of package activate
// use the same path (keysAside). The folder is in /run/keys because NixOS mounts memory there that is never swapped out.
const asideFolder = "/run/keys/.nixbench-before"

// asideTimeout is the time limit for commands that send no keys.
const asideTimeout = 30 * time.Second

// Mode is what upload.sh does on the node: it uploads or compares keys, or it ends the backup of the keys.
type Mode string

const (
	Undo    Mode = "undo"    // restore the keys from the backup if the switch was not executed and the node has not done so already
	Restore Mode = "restore" // restore the keys from the backup, also after the switch has ended
	Forget  Mode = "forget"  // delete the backup
	apply   Mode = "apply"
	compare Mode = "plan"
)

// steps maps each mode to the name of its step in errors.
var steps = map[Mode]string{
	Undo: "restore keys", Restore: "restore keys", Forget: "delete the key backup", apply: "upload keys", compare: "compare keys",
}

// EndBackup runs upload.sh on the node in a mode that ends the backup of replaced keys: Undo, Restore or Forget.
func (u *Uploader) EndBackup(ctx context.Context, node string, h remote.Connector, mode Mode) error {
	ctx, cancel := context.WithTimeout(ctx, asideTimeout)
	defer cancel()
	what := steps[mode]
	until, _ := ctx.Deadline()
	wait := u.Send.Wait(event.Event{Node: node, Phase: event.Keys, Text: what, Until: until})
	defer wait.End()
	conn, err := h.Conn(ctx)
	if err == nil {
		err = conn.Run(ctx, remote.Cmd{Argv: u.scriptCommand(mode, Drop, false), Name: what, Stdin: strings.NewReader(script), Sudo: true})
	}
	if err == nil || errors.As(err, new(*remote.RunError)) { // without another prefix: a RunError contains the node and the step already
		return err
	}
	return failure.On(node, fmt.Errorf("%s: %w", what, err))
}
