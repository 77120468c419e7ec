package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nixbench/nixbench/deploy/engine"
)

// Invite implements [engine.Inviter]. Where no control plane knows of a cluster, the
// first one is permitted to create it: only we can tell that there is none from that all
// others are down. In a cluster that is there, the join token is made valid again.
func (e *Engine) Invite(ctx context.Context, node string) error {
	all := e.controlPlanes()
	switch {
	case !slices.ContainsFunc(e.Cluster.Members, func(m engine.Member) bool { return m.Node == node }):
		return nil
	case len(all) == 0:
		return fmt.Errorf("%s: it is a worker, and the hive has no control plane; a role of it imports modules/kubernetes/control-plane.nix", node)
	}
	_, err := e.nodes(ctx)
	switch {
	case err == nil:
		return e.renewToken(ctx)
	case errors.Is(err, errNone) && node == all[0]:
		return e.permit(ctx, node)
	case errors.Is(err, errNone), e.creating(ctx):
		return nil // one that is being created knows the token already
	}
	return fmt.Errorf("%s: it cannot join: %w", node, err)
}

// permit lets a control plane create the cluster. It is a file in memory, so that a
// machine that is made anew later has none.
func (e *Engine) permit(ctx context.Context, node string) error {
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

// creating tells whether a control plane is at it.
func (e *Engine) creating(ctx context.Context) bool {
	return slices.ContainsFunc(e.controlPlanes(), func(node string) bool {
		phase, _ := e.phase(ctx, node)
		return phase != "" && phase != "ready"
	})
}

// renewToken has a control plane let nodes join with the token that was brought to it;
// once, for all that come.
func (e *Engine) renewToken(ctx context.Context) error {
	e.renewing.Lock()
	defer e.renewing.Unlock()
	if e.renewed {
		return nil
	}
	var errs []error
	for _, node := range e.controlPlanes() {
		one, cancel := context.WithTimeout(ctx, 4*askTimeout)
		_, err := e.Run(one, node, nil, "systemctl", "start", "nixbench-kubernetes-token.service")
		cancel()
		if err == nil {
			e.renewed = true
			return nil
		}
		errs = append(errs, err)
	}
	return fmt.Errorf("kubernetes: the join token cannot be renewed: %w", errors.Join(errs...))
}
