package deploy

import (
	"context"
	"errors"
	"fmt"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// takeBackAll undoes what this run has switched: --rollback-all-on-failure. In a living cluster
// it goes the same way as the run. But what does not let go of its work is taken back all the
// same, since that may be what mends it; and a node that cannot be taken back holds up no others,
// unless it may be the second of those that may only be changed one by one to be missing.
func (r *run) takeBackAll(ctx context.Context, l living) error {
	waves := l.order(r.switched(), func(string) bool { return !r.Goal.runs() }, r.MaxUnavailable)
	var errs []error
	missing := ""
	for _, wave := range waves {
		if l.oneByOne(wave) && missing != "" {
			node := wave[0].Name
			errs = append(errs, &NodeError{Node: node, Step: event.Activate, Err: fmt.Errorf("not taken back, since %s does not work yet; nixbench rollback --on %s does it", missing, node)})
			continue
		}
		for _, o := range Each(ctx, wave, r.Parallel, func(ctx context.Context, n nixeval.Node) (struct{}, error) {
			begun := false
			back := func() error {
				begun = true
				return r.takeBack(ctx, n)
			}
			err := r.amid(ctx, l, n.Name, r.WithoutDrain || !r.Goal.runs(), back)
			if !begun && ctx.Err() == nil {
				r.warn(n.Name, err)
				err = back()
			}
			return struct{}{}, err
		}) {
			if o.Err != nil && l.oneByOne(wave) && !r.works(ctx, l, o.Node.Name) {
				missing = o.Node.Name
			}
			errs = append(errs, o.Err)
		}
	}
	return errors.Join(errs...)
}

// works tells whether a member works with what it has now.
func (r *run) works(ctx context.Context, l living, node string) bool {
	ctx, cancel := context.WithTimeout(ctx, backTimeout)
	defer cancel()
	return l.members[node].engine.Return(ctx, node, func(string) {}) == nil
}

// takeBack brings one node to what it ran and booted before this run. Those are two
// systems where the one before was only to boot, or only to run.
func (r *run) takeBack(ctx context.Context, n nixeval.Node) error {
	before := r.before(n)
	err := r.undo(ctx, n, before)
	if err == nil {
		err = r.Store.Update(func(s *state.State) error {
			s.Confirm(n.Name, deployment(before, before.Current, r.Record.ID()))
			return nil
		})
	}
	if err != nil {
		return &NodeError{Node: n.Name, Step: event.Activate, Err: fmt.Errorf("cannot be taken back: %w", err)}
	}
	text := fmt.Sprintf("taken back to generation %d, since another node failed", before.GenerationOf(before.Current))
	r.done(n, nixeval.Closure{Out: before.Current}, state.RolledBack, text, nil)
	return nil
}

func (r *run) undo(ctx context.Context, n nixeval.Node, before activate.Node) error {
	h, err := r.Fleet.Host(ctx, n)
	if err != nil {
		return err
	}
	back := func(goal activate.Goal, path string) error {
		generation := before.GenerationOf(path)
		if generation == 0 {
			return fmt.Errorf("it had no generation to go back to")
		}
		if !r.WithoutKeys { // first: what starts again wants the old ones
			if err := r.Uploader.PutBack(ctx, n.Name, h); err != nil {
				return err
			}
		}
		_, err := r.Activator.Rollback(ctx, n.Name, h, generation, activate.Request{
			Run: r.Record.ID() + "-back", Goal: goal, Confirm: r.Confirm, ReplaceUnknown: true,
		})
		return err
	}
	if r.Goal != Boot {
		goal := activate.Switch
		if r.Goal == Test {
			goal = activate.Test
		}
		if err := back(goal, before.Current); err != nil {
			return err
		}
	}
	if r.Goal != Test && before.Profile != before.Current || r.Goal == Boot {
		return back(activate.Boot, before.Profile)
	}
	return nil
}
