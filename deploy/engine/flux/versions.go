package flux

import (
	"context"
	"strings"

	"github.com/nixbench/nixbench/deploy/engine"
)

// Versions implements [engine.Engine]. Brokers of different versions do not connect to each other, so all nodes of the
// instance must have the same version after a run.
func (e *Engine) Versions(ctx context.Context, nodes []string) (map[string]engine.Change, error) {
	out, err := e.RunOnHead(ctx, "flux", "getattr", "version")
	running := strings.TrimSpace(out)
	if err != nil || running == "" {
		return nil, nil // No error if the leader does not answer: this may be the first deployment, or a deployment that repairs the instance.
	}
	members, err := e.Members(ctx)
	if err != nil {
		return nil, nil
	}
	observed := map[string]string{}
	for name := range members {
		observed[name] = running
	}
	changes, after, err := e.PlanVersions(nodes, observed)
	if err != nil {
		return nil, err
	}
	return changes, e.checkSameVersion(after)
}

// checkSameVersion returns an error if a node would have another version than the leader.
func (e *Engine) checkSameVersion(desired map[string]string) error {
	leader := e.Node()
	for _, m := range e.Cluster.Members {
		if version := desired[m.Node]; version != "" && version != desired[leader] {
			return engine.NewVersionError("set nixbench.flux.package to the same version on all nodes, and apply to all nodes at once",
				"flux: after this run %s would have version %s, and the leader %s version %s: Flux connects only brokers of the same version", m.Node, version, leader, desired[leader])
		}
	}
	return nil
}
