package rollout

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/nixbench/nixbench/deploy/check"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/nixeval"
)

// repair solves problems that waiting does not solve and that keep the cluster from working at the end of a run, such as a systemd
// unit of the engine that is down.
type repair struct {
	reporter
	nodes   []string        // names of the nodes of the run that have an engine in the hive
	started map[string]bool // node and systemd unit → whether it was started
}

func (r reporter) newRepair(nodes []string) repair { return repair{r, nodes, map[string]bool{}} }

// look returns a function that inspects the nodes of the run. It starts each systemd unit of the engine that is down, once. If all
// these units work, it uncordons members that nixbench has drained: if a controller of the engine was killed, the end of a drain
// may have been lost.
func (r repair) look(e engine.Engine) check.Look {
	return func(ctx context.Context) (string, bool) {
		faults := engine.LookAll(ctx, e, r.nodes)
		r.startUnits(ctx, e, faults)
		text, lasts := engine.DescribeFaults(e, r.nodes, faults)
		if !lasts {
			r.uncordon(ctx, e)
		}
		return text, lasts
	}
}

// startUnits starts the systemd units that are down on nodes of the run. It returns true if it has started one of these units.
func (r repair) startUnits(ctx context.Context, e engine.Inspector, faults []engine.NodeFaults) bool {
	started := false
	for _, n := range faults {
		for _, f := range n.Faults {
			id := n.Node + " " + f.Unit
			if !f.Down || r.started[id] || !slices.Contains(r.nodes, n.Node) {
				continue
			}
			r.started[id] = true
			r.send.WarnOn(n.Node, "%s: %v; nixbench starts it", n.Node, f)
			err := e.ControlUnit(ctx, n.Node, "start", f.Unit)
			if started = started || err == nil; err != nil {
				r.send.WarnOn(n.Node, "%v", failure.On(n.Node, err))
			}
		}
	}
	return started
}

// restartTime is the time limit until an engine answers after nixbench has started its systemd units.
const restartTime = time.Minute

// askMembers asks an engine for its members. If the engine does not answer, askMembers starts the engine's systemd units that are
// down on the nodes in start, and asks again. The error says what is wrong on these nodes and on the controllers.
func (r reporter) askMembers(ctx context.Context, e engine.Engine, start []string) (map[string]engine.Status, error) {
	members, err := e.Members(ctx)
	if err == nil || ctx.Err() != nil {
		return members, err
	}
	faults := engine.LookAll(ctx, e, start)
	if text, _ := engine.DescribeFaults(e, start, faults); text != "" {
		err = fmt.Errorf("%w\n%s", err, text)
	}
	if !r.newRepair(start).startUnits(ctx, e, faults) {
		return nil, err
	}
	for end := time.Now().Add(restartTime); err != nil && time.Now().Before(end) && ctx.Err() == nil; {
		members, err = e.Members(ctx)
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
	return members, err
}

// uncordonTime is the time limit for one attempt to uncordon members while nixbench waits for the cluster to be healthy. The
// attempt is repeated.
const uncordonTime = 5 * time.Second

func (r repair) uncordon(ctx context.Context, e engine.Engine) {
	ctx, cancel := context.WithTimeout(ctx, uncordonTime)
	defer cancel()
	members, _ := e.Members(ctx) // an error is ignored: the conditions report an engine that does not answer
	for _, node := range nixeval.SortedNames(members) {
		if members[node].Drained && slices.Contains(r.nodes, node) && e.Uncordon(ctx, node) == nil {
			r.send.WarnOn(node, "%s: it was still drained by nixbench, and takes work again", node)
		}
	}
}

// outOfService returns the members that an administrator or the engine had taken out of service before the run.
func (cluster Cluster) outOfService() []string {
	return slices.DeleteFunc(nixeval.SortedNames(cluster.Members), func(node string) bool {
		m := cluster.Members[node]
		return !m.Cordoned || m.Drained
	})
}
