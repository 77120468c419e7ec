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

// NodeConditions returns the conditions that every node must meet, with any engine or without one. Units that had
// failed on a node before, as in before, do not count. A warning names them once the condition holds.
func NodeConditions(f *Fleet, nodes []nixeval.Node, parallel int, before map[string]activate.Node, send event.Sink) []check.Condition {
	var inspected []Outcome[activate.Node]
	return []check.Condition{{
		Name: Count(len(nodes), "node") + " up, without failed units",
		Probe: func(ctx context.Context) error {
			var bad []string
			var still []event.Event
			now := InspectNodes(ctx, f, nodes, parallel, nil)
			for i, o := range now {
				var old []string
				now[i].Value.Failed, old = failedSince(before[o.Node.Name], o.Value)
				if len(old) > 0 {
					still = append(still, event.Event{Kind: event.Message, Level: "warning", Node: o.Node.Name,
						Text: fmt.Sprintf("%s: failed before this run and has not recovered: %s", o.Node.Name, strings.Join(old, ", "))})
				}
			}
			if ctx.Err() == nil { // a cancelled inspection has no result
				inspected = now
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
			reasons := FailureReasons(ctx, f, inspected, parallel)
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

// failedSince splits the failed units of a node into those that have failed since before and those
// that had already failed.
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

// MemberConditions returns the conditions of the programs that run on the members themselves. The engine may
// notice only a minute later that such a program has stopped.
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
						bad = append(bad, o.Node.Name+": "+briefError(o.Node.Name, o.Err))
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

// Engines has a constructor for each kind of engine.
type Engines map[string]func(engine.Cluster) engine.Engine

// Of returns the engines of the hive, ordered by kind. Each of them can run commands on its members.
func (makers Engines) Of(hive *nixeval.Hive, f *Fleet) ([]engine.Engine, error) {
	withMembers, err := makers.withMembers(hive, f, nil)
	var out []engine.Engine
	for _, t := range withMembers {
		out = append(out, t.engine)
	}
	return out, err
}

// engineWithMembers is an engine with its desired members.
type engineWithMembers struct {
	engine  engine.Engine
	members []engine.Member
}

// withMembers returns the engines of the hive with their desired members. Members in without are left out,
// because they are about to be removed and must not be asked.
func (makers Engines) withMembers(hive *nixeval.Hive, f *Fleet, without []string) ([]engineWithMembers, error) {
	var out []engineWithMembers
	all := engine.Members(hive)
	for _, kind := range sortedKeys(all) {
		members := all[kind]
		of := makers[kind]
		if of == nil {
			return nil, fmt.Errorf("%s.deployment.engine.kind: this version of nixbench has no engine %q", members[0].Node, kind)
		}
		members = slices.DeleteFunc(members, func(m engine.Member) bool { return slices.Contains(without, m.Node) })
		out = append(out, engineWithMembers{of(engine.Cluster{Name: hive.ClusterName(), Members: members, Run: f.runOn}), members})
	}
	return out, nil
}

// Certificates returns the certificates of nodes by node name. A node that does not answer or is not a member
// has none.
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

// runOn runs a command as root on the named node of the fleet.
func (f *Fleet) runOn(ctx context.Context, node string, stdin io.Reader, argv ...string) ([]byte, error) {
	h, err := f.Host(ctx, f.nodeByName(node))
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

// programOf returns the name of the program in argv for messages, and for kubectl also the verb.
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

// nodeByName returns the node of the hive with this name. For a node that the hive no longer has, it returns
// one with the role of its recorded machine.
func (f *Fleet) nodeByName(name string) nixeval.Node {
	for _, n := range f.hive.Nodes {
		if n.Name == name {
			return n
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return nixeval.Node{Name: name, Role: f.machines[name].Role, Unit: f.machines[name].Role}
}
