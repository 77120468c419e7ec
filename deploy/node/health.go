package node

import (
	"context"
	"fmt"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/health"
	"github.com/nixbench/nixbench/nixeval"
)

// healthChecks returns the health checks that a change of a node with these options runs.
func (c *Changer) healthChecks(ctx context.Context, n nixeval.Node, o Options) (health.Checks, error) {
	if o.WithoutHealthChecks || !o.Goal.ActivatesNow() {
		return health.Checks{}, nil
	}
	return health.Of(ctx, c.Fleet, n)
}

// CheckHealth waits until the health checks of a changed node pass. It does not roll the node back: result says in the error what the
// node does.
func (c *Changer) CheckHealth(ctx context.Context, n nixeval.Node, o Options, result string) error {
	checks, err := c.healthChecks(ctx, n, o)
	if err == nil {
		err = checks.Await(ctx, event.Check, c.Send)
	}
	if err != nil {
		return nodeError(n.Name, event.Activate, fmt.Errorf("%w; %s", err, result))
	}
	return nil
}
