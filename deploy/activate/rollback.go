package activate

import (
	"context"
	"errors"
	"fmt"

	"github.com/nixbench/nixbench/deploy/failure"
)

// Rollback activates an earlier generation of the node's profile. If generation is zero, it activates the system that the node ran
// before nixbench's last run. r contains the other settings of the activation; r.Path is ignored. If no client confirms the
// earlier system in time, the node goes back to the system that runs now, as after any other switch.
func (a *Activator) Rollback(ctx context.Context, node string, h Host, generation int, r Request) (Result, error) {
	n, err := a.Inspect(ctx, node, h)
	if err != nil {
		return Result{}, err
	}
	if generation == 0 {
		if n.Previous == "" {
			return Result{Before: n, After: n}, failure.On(node, errors.New("roll back: there is no record of what the node ran before the last run: name a generation"))
		}
		r.Path, r.generation = n.Previous, n.GenerationOf(n.Previous)
	} else {
		for _, g := range n.Generations {
			if g.Number == generation {
				r.Path, r.generation = g.Path, g.Number
			}
		}
		if r.generation == 0 {
			return Result{Before: n, After: n}, failure.On(node, fmt.Errorf("roll back: the node has no generation %d", generation))
		}
	}
	r.Observed = &n
	r.ReplaceUnknown = true // the user has chosen the target explicitly
	if r.Goal == "" {
		r.Goal = Switch
	}
	return a.Activate(ctx, node, h, r)
}
