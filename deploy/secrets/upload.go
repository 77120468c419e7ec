package secrets

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/nixeval"
)

// Uploader loads keys and uploads them to nodes. The zero value works.
type Uploader struct {
	Send event.Sink

	// Generated returns a part of a secret that nixbench has generated. If it is nil, Load fails for a node that has such secrets.
	Generated func(nixeval.Generated) ([]byte, error)

	runner func(ctx context.Context, argv ...string) ([]byte, error) // for tests: replaces runProgram
	root   string                                                    // for tests: replaces the node's root folder
}

const listFile = "/var/lib/nixbench/keys"

// readersFolder is a folder on the node. It has a file for each service that reads keys when it starts. The file contains the
// hashes of the keys that the service has read; modules/keys.nix writes it.
const readersFolder = "/run/nixbench-keys-read"

// Result is the result of an upload: the names of keys in alphabetical order, and the paths of stale keys (which the hive no
// longer has). Each key of the set is in one of the first three lists, or in the error.
type Result struct {
	Uploaded  []string
	Adjusted  []string // keys of which only the owner or mode was changed
	Unchanged []string

	// Deferred are the keys in Uploaded, Adjusted or Unchanged whose user or group does not exist yet. The activation of the
	// system sets their owner and mode.
	Deferred []string

	Stale   []string // paths of uploaded keys that the hive no longer has
	Removed []string // the stale paths that were removed

	Restarted []string // the systemd units that had read another version of a key
}

// Changes reports whether Upload has changed the node. For a result of [Uploader.Plan], it reports whether Upload would change the
// node.
func (r Result) Changes() bool {
	return len(r.Uploaded)+len(r.Adjusted)+len(r.Stale)+len(r.Restarted) > 0
}

// Summary returns the result in one line for the output, such as "2 keys uploaded".
func (r Result) Summary() string {
	var parts []string
	for i, names := range [][]string{r.Uploaded, r.Adjusted, r.Removed, r.Deferred, r.Restarted} {
		what := []string{"uploaded", "changed owner or mode of", "removed", "owner set at activation:", "restarted"}[i]
		if len(names) > 0 {
			parts = append(parts, what+" "+strings.Join(names, ", "))
		}
	}
	if n := len(r.Unchanged); n > 0 {
		parts = append(parts, fmt.Sprintf("%d unchanged", n))
	}
	return cmp.Or(strings.Join(parts, "; "), "no keys")
}

// Upload makes the keys on a node equal to a set. If one key fails, Upload still uploads the other keys, but removes no stale key.
func (u *Uploader) Upload(ctx context.Context, h remote.Connector, set Set) (Result, error) {
	u.Send.Send(event.Event{Kind: event.NodeStart, Phase: event.Keys, Node: set.Node, Text: event.Count(len(set.Keys), "key")})
	ctx, cancel := context.WithTimeout(ctx, uploadTimeout)
	defer cancel()
	result, err := u.runExchange(ctx, h, set, apply)
	u.Send.Send(event.Event{Kind: event.NodeEnd, Phase: event.Keys, Node: set.Node, Text: result.Summary(), Failed: err != nil})
	return result, err
}

// Plan reports what Upload would do. It changes nothing on the node.
func (u *Uploader) Plan(ctx context.Context, h remote.Connector, set Set) (Result, error) {
	ctx, cancel := context.WithTimeout(ctx, uploadTimeout)
	defer cancel()
	until, _ := ctx.Deadline()
	wait := u.Send.Wait(event.Event{Node: set.Node, Phase: event.Keys, Text: "the node's report of its keys", Until: until})
	defer wait.End()
	return u.runExchange(ctx, h, set, compare)
}

// uploadTimeout is the time limit of the exchange with one node.
const uploadTimeout = 3 * time.Minute

// newKeyError returns an error about one key. message is what the node has printed about the failure.
func (s Set) newKeyError(k Key, message string) error {
	if message = strings.TrimSpace(message); message == "" {
		message = "no reason given"
	}
	return fmt.Errorf("%s.deployment.keys.%s: cannot write it to %s: %s", s.Node, k.Name, k.Path, message)
}
