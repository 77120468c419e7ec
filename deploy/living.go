package deploy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/plan"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// living is what runs on the nodes already. Its members are changed a few at a time, and
// their work is taken away before; nodes that are no members yet are nobody's loss.
type living struct {
	engines []engine.Engine
	members map[string]member
	wished  map[string]bool // nodes that the hive has as members
	drain   engine.DrainOptions
}

type member struct {
	engine engine.Engine
	engine.Status
	// anew: the machine was made anew, and knows nothing of what it was a member of.
	anew bool
	// silent: the engine does not answer. That this is a member, and which, the hive says.
	silent bool
}

// living asks the hive's engines for their members. Before the first deployment there is
// nobody to ask. A short silence must not turn one by one into all at once, so where an engine
// does not answer, nodes that were deployed before count as its members, also those that say so themselves.
func (d *Deployer) living(ctx context.Context, hive *nixeval.Hive, says func(node string) bool) (living, error) {
	l := living{members: map[string]member{}, wished: map[string]bool{}}
	if d.Engines == nil { // a node by itself
		return l, nil
	}
	teams, err := d.Engines.of(hive, d.Fleet, nil)
	if err != nil {
		return l, err
	}
	known := d.Store.State()
	if err := d.unread(hive); err != nil && len(teams) > 0 {
		return l, err
	}
	for _, t := range teams {
		l.engines = append(l.engines, t.engine)
		deployed := slices.DeleteFunc(slices.Clone(t.members), func(m engine.Member) bool {
			l.wished[m.Node] = true
			return known.Nodes[m.Node].LastConfirmed == nil && !says(m.Node)
		})
		if len(deployed) == 0 {
			continue
		}
		members, err := t.engine.Members(ctx)
		switch {
		case ctx.Err() != nil:
			return l, context.Cause(ctx)
		case err != nil:
			// What cannot be asked cannot be drained either, and this run may be what mends it.
			d.warn("", fmt.Errorf("nodes that cannot be asked about are changed one after the other, and without taking their work away before: %w", err))
			for _, m := range deployed {
				l.members[m.Node] = member{engine: t.engine, Status: engine.Status{OneByOne: m.OneByOne}, silent: true}
			}
		}
		for node, status := range members {
			l.members[node] = member{engine: t.engine, Status: status}
		}
	}
	return l, nil
}

// order cuts nodes into waves, of which one follows the other. The calm, on which nothing
// stops, are in the first: no wave need wait for them. In a living cluster so are nodes that are
// no members yet; then come members that may only be changed one by one, and then the
// others, share of them at a time.
func (l living) order(nodes []nixeval.Node, calm func(node string) bool, share plan.Share) [][]nixeval.Node {
	lives := len(l.members) > 0
	var first, single, others []nixeval.Node
	for _, n := range nodes {
		m, is := l.members[n.Name]
		switch {
		case calm(n.Name), lives && l.wished[n.Name] && (!is || m.anew), lives && !is && share.All():
			first = append(first, n)
		case is && m.OneByOne:
			single = append(single, n)
		default:
			others = append(others, n)
		}
	}
	if share.All() && lives {
		share = plan.One
	}
	var out [][]nixeval.Node
	for _, n := range single {
		out = append(out, []nixeval.Node{n})
	}
	out = append(out, plan.Waves(others, share)...)
	if len(out) == 0 || lives {
		return append([][]nixeval.Node{first}, out...)
	}
	out[0] = append(first, out[0]...)
	return out
}

// oneByOne tells whether a wave is of such members.
func (l living) oneByOne(wave []nixeval.Node) bool {
	return len(wave) == 1 && l.members[wave[0].Name].OneByOne
}

// amid changes a node amid what runs: a member's work is taken away before and given back
// after, whatever becomes of the change. Where it keeps its work, change is not called.
func (d *Deployer) amid(ctx context.Context, l living, node string, withoutDrain bool, change func() error) error {
	m, is := l.members[node]
	if m.silent && !withoutDrain { // it may answer by now
		if members, err := m.engine.Members(ctx); err == nil {
			m = member{engine: m.engine}
			m.Status, is = members[node]
		}
	}
	is = is && !m.anew && !m.silent
	drains := is && !withoutDrain
	if !drains && (!is || !m.Left) {
		return change()
	}
	return d.around(ctx, l.drain, m, node, drains, change)
}

// around does something to a member that lets go of its work before, if it drains; it gets it back
// in any case.
func (d *Deployer) around(ctx context.Context, o engine.DrainOptions, m member, node string, drains bool, change func() error) error {
	if drains {
		if err := d.drain(ctx, m.engine, node, "", o); err != nil {
			return err
		}
	}
	err := change()
	back := ctx
	if err != nil {
		// Mostly it runs what it ran before, and can take work at once.
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), backTimeout)
		defer cancel()
		back = limited
	}
	return errors.Join(err, d.back(back, m, node))
}

// back gives a member its work again, once it is ready for it.
func (d *Deployer) back(ctx context.Context, m member, node string) error {
	return d.parting(node, "takes work again", func(report func(string)) error { return m.engine.Return(ctx, node, report) })
}

// backTimeout bounds giving work back where something has failed.
const backTimeout = 30 * time.Second

// amidAll changes nodes amid what runs, in its order, and reports what has become of each.
func (d *Deployer) amidAll(ctx context.Context, nodes []nixeval.Node, says func(node string) bool, withoutDrain bool, o engine.DrainOptions, share plan.Share, parallel int,
	change func(context.Context, nixeval.Node) (state.NodeResult, string, error)) ([]state.NodeResult, error) {
	var results []state.NodeResult
	skip := func(n nixeval.Node, err error) {
		results = append(results, d.report(state.NodeResult{Node: n.Name, Unit: n.Unit, Outcome: state.Skipped}, "", err))
	}
	l, err := d.living(ctx, d.Fleet.hive, says)
	l.drain = o
	if err == nil && !withoutDrain {
		err = d.checkDrains(ctx, l, names(nodes), nil)
	}
	if err != nil {
		for _, n := range nodes {
			skip(n, err)
		}
		return results, err
	}
	waves := l.order(nodes, func(string) bool { return false }, share)
	var errs []error
	for _, o := range inWaves(ctx, waves, parallel, func(ctx context.Context, n nixeval.Node) (state.NodeResult, error) {
		r := state.NodeResult{Node: n.Name, Unit: n.Unit, Outcome: state.Failed}
		text := ""
		err := d.amid(ctx, l, n.Name, withoutDrain, func() (err error) {
			r, text, err = change(ctx, n)
			return err
		})
		return d.report(r, text, err), err
	}, func(int) {}) {
		if o.Value.Node == "" { // its turn never came
			skip(o.Node, o.Err)
		} else {
			results = append(results, o.Value)
		}
		errs = append(errs, o.Err)
	}
	return results, errors.Join(errs...)
}
