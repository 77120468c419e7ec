package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tidwall/gjson"
)

// Leave drains a node, as kubectl drain does. For good, nobody waits for the pods of a node
// that does not answer any more.
func (e *Engine) Leave(ctx context.Context, node string, good bool) error {
	nodes, err := e.nodes(ctx)
	if errors.Is(err, errNone) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: drain: %w", node, err)
	}
	n, member := nodes[node]
	if !member || good && !e.answers(ctx, node) {
		return nil
	}
	if err := e.drain(ctx, node, n, good); err != nil {
		return fmt.Errorf("%s: drain: %w", node, err)
	}
	return nil
}

// answers tells whether commands can be run on a node.
func (e *Engine) answers(ctx context.Context, node string) bool {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	_, err := e.Run(ctx, node, nil, "true")
	return err == nil
}

func (e *Engine) drain(ctx context.Context, node string, n gjson.Result, good bool) error {
	cordoned := n.Get("spec.unschedulable").Bool()
	if !mark(n).Exists() {
		note := time.Now().UTC().Format(time.RFC3339)
		if cordoned {
			if !good {
				return nil // somebody else has taken its work away, and will give it back
			}
			note += theirs
		}
		if _, err := e.kubectl(ctx, "", "annotate", "--overwrite", "node", node, left+"="+note); err != nil {
			return err
		}
	}
	limit := drainTimeout
	if good && !ready(n) {
		limit = 10 * time.Second // its pods cannot be seen to end
	}
	ctx, cancel := context.WithTimeout(ctx, limit+askTimeout)
	defer cancel()
	_, err := e.kubectl(ctx, "", "drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--force",
		"--timeout="+limit.String())
	if err != nil && good && !ready(n) {
		return nil
	}
	return err
}

func mark(n gjson.Result) gjson.Result {
	return n.Get("metadata.annotations." + gjson.Escape(left))
}
