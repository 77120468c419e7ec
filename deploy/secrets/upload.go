package secrets

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/nixeval"
)

// Host connects to a node. *remote.Host implements it.
type Host interface {
	Conn(ctx context.Context) (*remote.Conn, error)
}

// Uploader loads keys and uploads them to nodes. The zero value works.
type Uploader struct {
	Send   event.Sink
	Runner Runner // runs each keyCommand; nil: Exec

	// Generated returns a part of a secret that nixbench generates. If it is nil, Load fails for a node with generated
	// secrets.
	Generated func(nixeval.Generated) ([]byte, error)

	root string // for tests: replaces the node's root folder
}

const listFile = "/var/lib/nixbench/keys"

// readersFolder is a folder on the node with a file for each service that reads keys when it starts: the hashes of the keys
// that it has read. modules/keys.nix writes them.
const readersFolder = "/run/nixbench-keys-read"

// Result is the result of an upload: names of keys in alphabetical order, and paths of stale keys. Each key of the set is in
// one of the first three lists, or in the error.
type Result struct {
	Uploaded  []string
	Adjusted  []string // keys of which only the owner or mode was changed
	Unchanged []string

	// Deferred are the keys in Uploaded, Adjusted or Unchanged whose user or group does not exist yet. The activation of the
	// system sets their owner and mode.
	Deferred []string

	Stale   []string // paths of uploaded keys that the hive no longer has
	Removed []string // the stale paths that were removed

	Restarted []string // the units that had read another key
}

// Changes reports whether the upload has changed the node, or, for a Plan, whether it would.
func (r Result) Changes() bool {
	return len(r.Uploaded)+len(r.Adjusted)+len(r.Stale)+len(r.Restarted) > 0
}

// Summary returns the result in one line for the output, such as "2 keys uploaded".
func (r Result) Summary() string {
	var parts []string
	add := func(what string, names []string) {
		if len(names) > 0 {
			parts = append(parts, what+" "+strings.Join(names, ", "))
		}
	}
	add("uploaded", r.Uploaded)
	add("changed owner or mode of", r.Adjusted)
	add("removed", r.Removed)
	add("owner set at activation:", r.Deferred)
	add("restarted", r.Restarted)
	if n := len(r.Unchanged); n > 0 {
		parts = append(parts, fmt.Sprintf("%d unchanged", n))
	}
	if len(parts) == 0 {
		return "no keys"
	}
	return strings.Join(parts, "; ")
}

// Upload makes the keys on a node equal to a set. If a key fails, Upload still uploads the other keys,
// but removes no stale key.
func (u *Uploader) Upload(ctx context.Context, h Host, set Set) (Result, error) {
	u.Send.Send(event.Event{Kind: event.NodeStart, Phase: event.Keys, Node: set.Node, Text: formatCount(len(set.Keys))})
	ctx, cancel := context.WithTimeout(ctx, uploadTimeout)
	defer cancel()
	result, err := u.runExchange(ctx, h, set, "apply")
	u.Send.Send(event.Event{Kind: event.NodeEnd, Phase: event.Keys, Node: set.Node, Text: result.Summary(), Failed: err != nil})
	return result, err
}

// Plan reports what Upload would do. It changes nothing on the node.
func (u *Uploader) Plan(ctx context.Context, h Host, set Set) (Result, error) {
	ctx, cancel := context.WithTimeout(ctx, uploadTimeout)
	defer cancel()
	until, _ := ctx.Deadline()
	wait := u.Send.Wait(event.Event{Node: set.Node, Phase: event.Keys, Text: "the node's report of its keys", Until: until})
	defer wait.End()
	return u.runExchange(ctx, h, set, "plan")
}

// uploadTimeout is the time limit of the exchange with one node.
const uploadTimeout = 3 * time.Minute

func formatCount(n int) string {
	if n == 1 {
		return "1 key"
	}
	return fmt.Sprintf("%d keys", n)
}

// newKeyError returns the error about one key, with the message of the node.
func (s Set) newKeyError(k Key, message string) error {
	if message = strings.TrimSpace(message); message == "" {
		message = "no reason given"
	}
	return fmt.Errorf("%s.deployment.keys.%s: cannot write it to %s: %s", s.Node, k.Name, k.Path, message)
}
