package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Invite implements [engine.Inviter]. Where no control plane knows of a cluster, the
// first one is permitted to create it: only we can tell that there is none from that all
// others are down. In a cluster that is there, the join token is made valid again.
func (e *Engine) Invite(ctx context.Context, nodes []string) error {
	all := e.controlPlanes()
	if len(all) == 0 {
		return errors.New("kubernetes: the hive has no control plane; a role of it imports modules/kubernetes/control-plane.nix")
	}
	_, err := e.nodes(ctx)
	switch {
	case errors.Is(err, errNone):
		return e.permit(ctx, all[0])
	case err != nil:
		// One that is being created right now answers soon, and knows the token already.
		if e.creating(ctx) {
			return nil
		}
		return fmt.Errorf("kubernetes: nodes cannot join: %w", err)
	}
	if len(nodes) == 0 {
		return nil
	}
	return e.renewToken(ctx)
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

// renewToken has a control plane let nodes join with the token that was brought to it.
func (e *Engine) renewToken(ctx context.Context) error {
	var errs []error
	for _, node := range e.controlPlanes() {
		one, cancel := context.WithTimeout(ctx, 4*askTimeout)
		_, err := e.Run(one, node, nil, "systemctl", "start", "nixbench-kubernetes-token.service")
		cancel()
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return fmt.Errorf("kubernetes: the join token cannot be renewed: %w", errors.Join(errs...))
}
