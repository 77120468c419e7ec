package flux

import (
	"context"
	"errors"
	"time"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/failure"
)

// offlineTimeout is the time limit until a broker that was stopped is offline.
const offlineTimeout = 10 * time.Second

// RemoveMember implements [engine.MemberRemover]. It stops the broker of the node, and ends the drain, which would
// otherwise also count for another node of this name. The name stays in the configuration.
func (e *Engine) RemoveMember(ctx context.Context, name string) error {
	s, err := e.readStatus(ctx)
	n, configured := s.nodes[name]
	switch {
	case errors.Is(err, errNoLeader):
		return nil
	case err != nil:
		return failure.On(name, err)
	case name == e.Node() || !configured || !n.online && !n.drained:
		return nil
	}
	stopErr := e.ControlUnit(ctx, name, "stop", unit) // may fail: the machine may be lost, or new and without Flux
	if stopErr != nil && n.online {
		// The leader notices only later that a machine does not answer any more.
		_, _ = e.RunOnHead(ctx, "flux", "overlay", "disconnect", name)
	}
	if err = e.awaitOffline(ctx, name); err == nil && n.drained {
		_, err = e.RunOnHead(ctx, "flux", "resource", "undrain", name)
	}
	if err != nil && stopErr == nil {
		err = errors.Join(err, e.ControlUnit(context.WithoutCancel(ctx), name, "start", unit))
	}
	if err != nil {
		return failure.On(name, err)
	}
	return nil
}

// awaitOffline waits until a node is offline.
func (e *Engine) awaitOffline(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, offlineTimeout)
	defer cancel()
	for {
		s, err := e.readStatus(ctx)
		if err == nil && !s.nodes[name].online {
			return nil
		}
		if !engine.Sleep(ctx, engine.PollInterval) {
			return errors.Join(errors.New("its broker is still online"), err)
		}
	}
}
