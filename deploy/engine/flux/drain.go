package flux

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/engine"
)

// reason is the reason that nixbench gives Flux for the drain of a node that nixbench is about to change.
const reason = drainReason + "it is about to change"

// Nodes implements [batch.System]. The leader is busy if any job runs.
func (c *client) Nodes(ctx context.Context) (map[string]node, error) {
	s, err := c.readStatus(ctx)
	if err != nil {
		return nil, err
	}
	leader := s.nodes[c.Node()]
	leader.leads, leader.busy = &s, slices.ContainsFunc(slices.Collect(maps.Values(s.nodes)), node.IsBusy)
	s.nodes[c.Node()] = leader
	return s.nodes, nil
}

// MustDrain implements [batch.System]. It also selects nodes of the hive that are offline. After a change of the leader, compute
// nodes come online one after the other, and those that are still to be changed must not get jobs.
func (c *client) MustDrain(name string, n node, o engine.DrainOptions) bool {
	if o.Removal {
		return n.isReady()
	}
	return n.online || slices.Contains(c.NodesOf(Compute), name)
}

// Mark implements [batch.System]. It drains compute nodes with one command. For the leader, it stops the queues that are started.
func (c *client) Mark(ctx context.Context, all map[string]node, nodes []string) error {
	compute := c.withoutLeader(nodes)
	if len(compute) < len(nodes) {
		if err := c.stopQueues(ctx, all[c.Node()].leads.queues); err != nil {
			return engine.NewDrainError(c.Node(), err)
		}
	}
	if len(compute) > 0 {
		if _, err := c.RunOnHead(ctx, "flux", "resource", "drain", strings.Join(compute, ","), reason); err != nil {
			return engine.NewDrainError(compute[0], err)
		}
	}
	return nil
}

func (c *client) Unmark(ctx context.Context, all map[string]node, nodes []string) error {
	compute := c.withoutLeader(nodes)
	if len(compute) > 0 {
		if _, err := c.RunOnHead(ctx, "flux", "resource", "undrain", strings.Join(compute, ",")); err != nil {
			return err
		}
	}
	if len(compute) == len(nodes) {
		return nil
	}
	return c.startQueues(ctx, all[c.Node()].leads.queues)
}

func (c *client) withoutLeader(nodes []string) []string {
	return slices.DeleteFunc(slices.Clone(nodes), func(n string) bool { return n == c.Node() })
}

// stopQueues stops the queues that are started. Before that, it writes the names of these queues to stoppedKey.
func (c *client) stopQueues(ctx context.Context, queues []queue) error {
	var keys []string
	for _, q := range queues {
		if q.started || q.isStoppedByUs() {
			keys = append(keys, q.key())
		}
	}
	if len(keys) == 0 {
		return nil
	}
	if _, err := c.RunOnHead(ctx, "flux", "kvs", "put", stoppedKey+"="+strings.Join(keys, " ")); err != nil {
		return err
	}
	for _, q := range queues {
		if q.started {
			if _, err := c.RunOnHead(ctx, q.command("stop", "--message="+reason)...); err != nil {
				return err
			}
		}
	}
	return nil
}

// startQueues starts the queues that nixbench has stopped, and removes stoppedKey afterwards.
func (c *client) startQueues(ctx context.Context, queues []queue) error {
	marked := false
	for _, q := range queues {
		marked = marked || q.marked
		if q.isStoppedByUs() {
			if _, err := c.RunOnHead(ctx, q.command("start")...); err != nil {
				return err
			}
		}
	}
	if !marked {
		return nil
	}
	_, err := c.RunOnHead(ctx, "flux", "kvs", "unlink", stoppedKey)
	return err
}

func (q queue) command(verb string, options ...string) []string {
	argv := append([]string{"flux", "queue", verb, "--quiet"}, options...)
	if q.name != "" {
		argv = append(argv, q.name)
	}
	return argv
}

// ListJobs implements [batch.System]. For the leader it lists all running jobs.
func (c *client) ListJobs(name string, _ node) []string {
	argv := []string{"flux", "jobs", "--no-header", "-A", "--filter=running", "--format={id.f58plain}"}
	if name != c.Node() {
		argv = append(argv, "--include="+name)
	}
	return argv
}

// offlineTimeout is how long nixbench waits until Flux reports a broker as offline that nixbench has stopped.
const offlineTimeout = 10 * time.Second

// Remove implements [batch.System]. It ends the drain of the node, because Flux would also apply this drain to a later node with
// the same name. The name stays in Flux's configuration.
func (c *client) Remove(ctx context.Context, name string, n node, stopErr error) error {
	if stopErr != nil && n.online {
		// Disconnect the node, because the leader notices only later that a machine does not answer any more.
		_, _ = c.RunOnHead(ctx, "flux", "overlay", "disconnect", name)
	}
	err := engine.Retry(ctx, offlineTimeout, nil, func() error {
		s, err := c.readStatus(ctx)
		if err == nil && s.nodes[name].online {
			err = errors.New("its broker is still online")
		}
		return err
	})
	if err == nil && n.drained {
		_, err = c.RunOnHead(ctx, "flux", "resource", "undrain", name)
	}
	return err
}
