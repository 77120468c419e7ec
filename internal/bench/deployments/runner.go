package deployments

import (
	"context"
	"errors"
	"fmt"

	"github.com/nixbench/nixbench/e2e/lab"
)

// runner measures scenarios on the machines of a lab.
type runner struct {
	options   Options
	lab       *lab.Lab
	hierarchy hierarchy
	nodes     []node
	tools     []*tool
	tracer    *tracer // nil if the kernel sends no events
	salt      string  // part of the store paths that no earlier benchmark has made
	counter   int     // the last number that count has returned
	large     string  // the large store path, if it was built
	notes     []string
}

// scenarioResult contains the figures of all runs of a scenario, by the label of the tool, and the error of a tool that
// failed.
type scenarioResult struct {
	runs   map[string][]figures
	failed map[string]error
}

// measureScenario runs the scenario with all tools in turn. A tool that fails is not run again.
func (r *runner) measureScenario(ctx context.Context, s scenario) scenarioResult {
	result := scenarioResult{map[string][]figures{}, map[string]error{}}
	for i := range r.options.Repeat {
		for _, t := range r.tools {
			if result.failed[t.label] != nil {
				continue
			}
			f, err := r.measureRun(ctx, s, t)
			if ctx.Err() != nil {
				return result
			}
			if err != nil {
				result.failed[t.label] = err
				fmt.Fprintf(r.options.Progress, "%s: %s: run %d: %v\n", s.name, t.label, i+1, err)
				continue
			}
			result.runs[t.label] = append(result.runs[t.label], f)
			fmt.Fprintf(r.options.Progress, "%s: %s: run %d: %.2f s, nodes %.2f s of processor time\n", s.name, t.label, i+1, f[wall], f[nodeCPU])
		}
	}
	return result
}

// measureRun prepares the nodes, and runs the scenario once.
func (r *runner) measureRun(ctx context.Context, s scenario, t *tool) (figures, error) {
	if before := (hive{keys: s.keys}); t.applied == nil || !t.applied.isLike(before) {
		before.line, before.keyVersion = r.count(), r.count()
		if err := r.apply(ctx, t, before); err != nil {
			return nil, fmt.Errorf("prepare: %w", err)
		}
	}
	measured := *t.applied
	if s.change != nil {
		s.change(&measured, r.count())
	}
	if s.goal == goalPush {
		if err := r.prepareLarge(ctx, t, measured); err != nil {
			return nil, fmt.Errorf("prepare: %w", err)
		}
	}
	f, err := r.runMeasured(ctx, s, t, measured)
	if err == nil {
		err = r.checkNodes(ctx, s, measured)
	}
	if s.goal == goalPush {
		err = errors.Join(err, r.deleteLargeOnNodes(ctx))
	}
	if err != nil {
		t.applied = nil
		return nil, err
	}
	return f, nil
}

// count returns a number that it has not returned before.
func (r *runner) count() int {
	r.counter++
	return r.counter
}

// apply applies a hive without measuring.
func (r *runner) apply(ctx context.Context, t *tool, h hive) error {
	nixpkgs, err := r.writeHive(ctx, t, h)
	if err != nil {
		return err
	}
	if _, err := t.run(ctx, r.lab, goalSwitch, "", nixpkgs); err != nil {
		return err
	}
	r.recordApplied(t, h)
	return nil
}

// recordApplied records that the nodes have the hive of this tool, and no longer that of another tool.
func (r *runner) recordApplied(t *tool, h hive) {
	for _, other := range r.tools {
		other.applied = nil
	}
	t.applied = &h
}

// runMeasured runs the tool with the hive, and reads the figures of the nodes before and afterwards.
func (r *runner) runMeasured(ctx context.Context, s scenario, t *tool, h hive) (f figures, err error) {
	nixpkgs, err := r.writeHive(ctx, t, h)
	if err != nil {
		return nil, err
	}
	on, addressed := "", len(r.nodes)
	if s.one {
		on, addressed = r.nodes[0].name, 1
	}
	before, err := r.readCounters(ctx)
	if err != nil {
		return nil, err
	}
	if s.goal == goalPush {
		opens, err := watchOpens(r.large)
		if err != nil {
			return nil, err
		}
		defer opens.stop()
		defer func() {
			if f != nil {
				f[storeOpens] = float64(opens.count.Load())
			}
		}()
	}
	endTrace := func() {}
	if r.tracer != nil {
		endTrace = r.tracer.traceChildren()
	}
	f, err = t.run(ctx, r.lab, s.goal, on, nixpkgs)
	endTrace()
	if err != nil {
		return nil, err
	}
	after, err := r.readCounters(ctx)
	if err != nil {
		return nil, err
	}
	before.addDifference(f, after, addressed)
	if s.goal == goalSwitch || s.goal == goalKeys {
		r.recordApplied(t, h)
	}
	return f, nil
}

// writeHive writes the hive for the tool, and returns the folder of its nixpkgs.
func (r *runner) writeHive(ctx context.Context, t *tool, h hive) (nixpkgs string, err error) {
	nixpkgs, err = assembleNixpkgs(r.options.Dir, r.salt, h.fresh)
	if err != nil {
		return "", err
	}
	var names []string
	for _, n := range r.nodes {
		names = append(names, n.name)
	}
	return nixpkgs, h.write(t.dir, r.lab.SSHConfig(), describeLarge(r.options.Size, r.salt), names)
}

// checkNodes checks that the nodes have what the hive contains, so that no tool is measured that did nothing.
func (r *runner) checkNodes(ctx context.Context, s scenario, h hive) error {
	if s.goal == goalPush {
		return r.checkLarge(ctx, s.one)
	}
	for _, n := range r.nodes {
		if s.goal == goalSwitch {
			if err := n.checkFile(ctx, "/etc/which", h.lineText()); err != nil {
				return err
			}
		}
		if h.keys > 0 {
			key := h.keys - 1
			if err := n.checkFile(ctx, "/run/keys/"+h.keyName(key), h.keyText(key, n.name)); err != nil {
				return err
			}
		}
	}
	return nil
}
