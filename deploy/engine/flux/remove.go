package flux

import (
	"context"
	"errors"
	"time"

	"github.com/nixbench/nixbench/deploy/engine"
)

// offlineTimeout is how long nixbench waits until Flux reports a broker as offline that nixbench has stopped.
const offlineTimeout = 10 * time.Second

// Remove implements [batch.System]. It ends the drain of the node, because Flux would also apply this drain to a later node with
// the same name. The name stays in Flux's configuration.
func (c *client) Remove(ctx context.Context, name string, n node, stopErr error) error {
	if stopErr != nil && n.online {
		// Disconnect the node, because the leader notices only later that a machine does not answer any more.
		_, _ = c.RunOnHead(ctx, "flux", "overlay", "disconnect", name)
	}
	err := c.awaitOffline(ctx, name)
	if err == nil && n.drained {
		_, err = c.RunOnHead(ctx, "flux", "resource", "undrain", name)
	}
	return err
}

func (c *client) awaitOffline(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, offlineTimeout)
	defer cancel()
	for {
		s, err := c.readStatus(ctx)
		if err == nil && !s.nodes[name].online {
			return nil
		}
		if !engine.Sleep(ctx, engine.PollInterval) {
			return errors.Join(errors.New("its broker is still online"), err)
		}
	}
}
