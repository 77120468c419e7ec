package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nixbench/nixbench/deploy/engine"
)

// Admit implements [engine.Admitter]. Where no control plane knows of a cluster, the
// first one is permitted to create it: only we can tell that there is none from that all
// others are down. In a cluster that is there, the join token is made valid again.
func (e *Engine) Admit(ctx context.Context, node string) error {
	all := e.controlPlanes()
	switch {
	case !e.isInHive(node):
		return nil
	case len(all) == 0:
		return fmt.Errorf("%s: it is a worker, and the hive has no control plane; a role of it imports modules/kubernetes/control-plane.nix", node)
	}
	_, err := e.listNodes(ctx)
	switch {
	case err == nil:
		return errors.Join(e.renewJoinToken(ctx), e.startJoin(ctx, node))
	case errors.Is(err, errNoControlPlane) && (node == all[0] || e.isWaiting(ctx, all[0])):
		// Whoever is invited: when the first one was, another may not have been there to ask.
		return e.permitCreation(ctx, all[0])
	case errors.Is(err, errNoControlPlane), e.isBeingCreated(ctx):
		return nil // one that is being created knows the token already
	}
	return fmt.Errorf("%s: it cannot join: %w", node, err)
}

// isInHive tells whether the hive has the node as a member.
func (e *Engine) isInHive(node string) bool {
	return slices.ContainsFunc(e.Cluster.Members, func(m engine.Member) bool { return m.Node == node })
}

// startJoin starts what joins, where a reset has stopped it and the node stayed after all.
func (e *Engine) startJoin(ctx context.Context, node string) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	_, err := e.Run(ctx, node, nil, "systemctl", "start", "--no-block", "nixbench-kubernetes.service")
	return err
}

// permitCreation lets a control plane create the cluster. It is a file in memory, so that a
// machine that is made anew later has none.
func (e *Engine) permitCreation(ctx context.Context, node string) error {
	s, err := e.settings()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if _, err := e.Run(ctx, node, nil, "install", "-D", "-m", "0600", "/dev/null", s.Permit); err != nil {
		return fmt.Errorf("%s: permit it to create the cluster: %w", node, err)
	}
	return nil
}

// isBeingCreated tells whether a control plane is at it. One that waits may wait for us.
func (e *Engine) isBeingCreated(ctx context.Context) bool {
	return slices.ContainsFunc(e.controlPlanes(), func(node string) bool {
		phase, _ := e.readPhase(ctx, node)
		return phase != "" && phase != "ready" && phase != phaseWaiting
	})
}

// isWaiting tells whether a node has been deployed and gets no further.
func (e *Engine) isWaiting(ctx context.Context, node string) bool {
	phase, _ := e.readPhase(ctx, node)
	return phase == phaseWaiting
}

// phaseWaiting is the phase of a node that needs something from elsewhere.
const phaseWaiting = "waiting"

// renewJoinToken has a control plane let nodes join with the token that was brought to it;
// once, for all that come.
func (e *Engine) renewJoinToken(ctx context.Context) error {
	e.tokenMu.Lock()
	defer e.tokenMu.Unlock()
	if e.tokenRenewed {
		return nil
	}
	var errs []error
	for _, node := range e.orderControlPlanes() {
		one, cancel := context.WithTimeout(ctx, 4*askTimeout)
		// Of a unit whose condition does not hold systemd says that it was started.
		_, err := e.Run(one, node, nil, "sh", "-c", "test -e /var/lib/nixbench/kubernetes/joined && exec systemctl start nixbench-kubernetes-token.service")
		cancel()
		if err == nil {
			e.tokenRenewed = true
			return nil
		}
		errs = append(errs, err)
	}
	return fmt.Errorf("kubernetes: the join token cannot be renewed: %w", errors.Join(errs...))
}
