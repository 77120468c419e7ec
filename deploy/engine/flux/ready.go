package flux

import (
	"context"
	"errors"
	"slices"

	"github.com/nixbench/nixbench/deploy/engine"
)

// WaitReady implements [engine.Engine]. A node is ready when its broker runs and is online. The leader is ready when the
// scheduler runs, too: before that, Flux does not report which queues are stopped.
func (e *Engine) WaitReady(ctx context.Context, name string, report engine.Report) error {
	return engine.AwaitReady(ctx, name, report, func(ctx context.Context) error { return e.checkReady(ctx, name) },
		func(ctx context.Context) string { return e.ReadLog(ctx, name, unit) })
}

// checkReady returns nil if the node works, or if it does not belong to the instance.
func (e *Engine) checkReady(ctx context.Context, name string) error {
	inHive := e.Has(name)
	if inHive {
		// Ask the node itself: the leader may still report a broker as online that has just been stopped.
		if err := engine.Inspect(ctx, e, name, true); err != nil {
			return err
		}
	}
	s, err := e.readStatus(ctx)
	n, configured := s.nodes[name]
	switch {
	case err != nil:
		return err
	case !configured && inHive:
		return errors.New("the running instance has no node of this name; the leader has not been changed yet")
	case !inHive && !n.drained:
		return nil
	case !n.isReady():
		return errors.New("it is " + n.describe())
	case name == e.Node() && slices.ContainsFunc(s.queues, func(q queue) bool { return q.reason == noScheduler }):
		return errors.New("the scheduler has not started")
	}
	return nil
}

func (e *Engine) FindFaults(ctx context.Context, name string) ([]engine.Fault, error) {
	return e.Cluster.FindFaults(ctx, name, unit)
}

const unit = "flux.service" // the systemd unit of the broker

func (c *client) UnitOf(string) string { return unit }
