package deploy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/check"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/nixeval"
)

// NodeConditions are what must hold of nodes, whatever runs on them. Units that had failed on a node
// before are no fault, as in an activation. A warning names them once the condition holds.
func NodeConditions(f *Fleet, nodes []nixeval.Node, parallel int, before map[string]activate.Node, send event.Sink) []check.Condition {
	var looked []Outcome[activate.Node]
	return []check.Condition{{
		Name: Count(len(nodes), "node") + " up, without failed units",
		Probe: func(ctx context.Context) error {
			var bad []string
			var still []event.Event
			now := Look(ctx, f, nodes, parallel, nil)
			for i, o := range now {
				var old []string
				now[i].Value.Failed, old = failedSince(before[o.Node.Name], o.Value)
				if len(old) > 0 {
					still = append(still, event.Event{Kind: event.Message, Level: "warning", Node: o.Node.Name,
						Text: fmt.Sprintf("%s: failed before this run, and still: %s", o.Node.Name, strings.Join(old, ", "))})
				}
			}
			if ctx.Err() == nil { // one that is cut short has seen nothing
				looked = now
			}
			for _, o := range now {
				switch {
				case o.Err != nil:
					bad = append(bad, o.Err.Error())
				case len(o.Value.Failed) > 0:
					bad = append(bad, fmt.Sprintf("%s: failed: %s", o.Node.Name, strings.Join(o.Value.Failed, ", ")))
				case o.Value.System == "starting":
					bad = append(bad, o.Node.Name+": still starting")
				}
			}
			if len(bad) > 0 {
				return errors.New(strings.Join(bad, "; "))
			}
			for _, e := range still {
				send.Send(e)
			}
			return nil
		},
		Explain: func(ctx context.Context) string {
			reasons := Reasons(ctx, f, looked, parallel)
			var lines []string
			for _, n := range nodes {
				for _, unit := range slices.Sorted(maps.Keys(reasons[n.Name])) {
					lines = append(lines, n.Name+": "+unit+": "+reasons[n.Name][unit])
				}
			}
			return strings.Join(lines, "\n")
		},
	}}
}

// failedSince divides the failed units of a node into those that have failed since before, and those
// that had failed then.
func failedSince(before, now activate.Node) (since, old []string) {
	for _, unit := range now.Failed {
		if slices.Contains(before.Failed, unit) {
			old = append(old, unit)
		} else {
			since = append(since, unit)
		}
	}
	return since, old
}

// MemberConditions are what must hold of members' own programs. What the nodes run together may miss
// those that have just died only a minute later.
func MemberConditions(engines []engine.Engine, nodes []nixeval.Node, parallel int) []check.Condition {
	var out []check.Condition
	for _, e := range engines {
		inspector, ok := e.(engine.Inspector)
		if !ok {
			continue
		}
		out = append(out, check.Condition{
			Name: "programs of " + Count(len(nodes), "member") + " run",
			Probe: func(ctx context.Context) error {
				var bad []string
				for _, o := range Each(ctx, nodes, parallel, func(ctx context.Context, n nixeval.Node) (struct{}, error) {
					return struct{}{}, inspector.Inspect(ctx, n.Name)
				}) {
					if o.Err != nil {
						bad = append(bad, o.Node.Name+": "+brief(o.Node.Name, o.Err))
					}
				}
				if len(bad) > 0 {
					return errors.New(strings.Join(bad, "; "))
				}
				return nil
			},
		})
	}
	return out
}

// Engines makes the engines that the hive's nodes are members of.
type Engines map[string]func(engine.Cluster) engine.Engine

// Of returns the hive's engines in the order of their kinds, each with a way to run commands on its members.
func (known Engines) Of(hive *nixeval.Hive, f *Fleet) ([]engine.Engine, error) {
	teams, err := known.of(hive, f, nil)
	var out []engine.Engine
	for _, t := range teams {
		out = append(out, t.engine)
	}
	return out, err
}

// team is an engine with the members that the hive wishes.
type team struct {
	engine  engine.Engine
	members []engine.Member
}

// of leaves out members that are about to leave for good: nobody asks them any more.
func (known Engines) of(hive *nixeval.Hive, f *Fleet, without []string) ([]team, error) {
	var out []team
	all := engine.Members(hive)
	for _, kind := range sortedKeys(all) {
		members := all[kind]
		of := known[kind]
		if of == nil {
			return nil, fmt.Errorf("%s.deployment.engine.kind: this nixbench knows no engine %q", members[0].Node, kind)
		}
		members = slices.DeleteFunc(members, func(m engine.Member) bool { return slices.Contains(without, m.Node) })
		out = append(out, team{of(engine.Cluster{Name: hive.ClusterName(), Members: members, Run: f.runOn}), members})
	}
	return out, nil
}

// Certificates asks nodes for theirs, by name. Of a node that does not answer, or has not
// joined anything, there are none.
func Certificates(ctx context.Context, engines []engine.Engine, nodes []nixeval.Node, parallel int) map[string][]engine.Certificate {
	out := map[string][]engine.Certificate{}
	for _, e := range engines {
		certified, ok := e.(engine.Certified)
		if !ok {
			continue
		}
		for _, o := range Each(ctx, nodes, parallel, func(ctx context.Context, n nixeval.Node) ([]engine.Certificate, error) {
			return certified.Certificates(ctx, n.Name)
		}) {
			if o.Err == nil {
				out[o.Node.Name] = append(out[o.Node.Name], o.Value...)
			}
		}
	}
	return out
}

// runOn runs a command as root on a node of the fleet, by name.
func (f *Fleet) runOn(ctx context.Context, node string, stdin io.Reader, argv ...string) ([]byte, error) {
	h, err := f.Host(ctx, f.node(node))
	if err != nil {
		return nil, err
	}
	conn, err := h.Conn(ctx)
	if err != nil {
		return nil, err
	}
	until, _ := ctx.Deadline()
	wait := f.options.Send.Wait(event.Event{Node: node, Text: "a command: " + programOf(argv), Until: until})
	defer wait.End()
	return conn.Output(ctx, remote.Cmd{Argv: argv, Stdin: stdin, Sudo: true})
}

// programOf names a command that is waited for, without its arguments but for kubectl's verb.
func programOf(argv []string) string {
	name := path.Base(argv[0])
	if name != "kubectl" {
		return name
	}
	for _, a := range argv[1:] {
		if !strings.HasPrefix(a, "-") && !strings.HasPrefix(a, "/") {
			return name + " " + a
		}
	}
	return name
}

// node is one of the hive, or one that has left it and whose machine is still there.
func (f *Fleet) node(name string) nixeval.Node {
	for _, n := range f.hive.Nodes {
		if n.Name == name {
			return n
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return nixeval.Node{Name: name, Role: f.machines[name].Role, Unit: f.machines[name].Role}
}
