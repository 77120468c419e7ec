package inspect

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/health"
	"github.com/nixbench/nixbench/deploy/machine"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// ClusterStatus is the status of nodes, with notes about their cluster.
type ClusterStatus struct {
	Rows       []Status
	Notes      []string
	Outside    map[string]string // nodes that are no members of the cluster that they have in the hive → the reason
	MembersErr error             // why the state of members is unknown, or nil
}

// Unhealthy returns the nodes that are not healthy, that run another system than the last run has deployed, or that are no
// members of their cluster. It leaves out nodes that are away.
func (c *ClusterStatus) Unhealthy() []string {
	var out []string
	for _, row := range c.Rows {
		if row.System != Away && (!row.Healthy() || c.Outside[row.Node] != "") {
			out = append(out, row.Node)
		}
	}
	return out
}

// Query says what [Observe] observes.
type Query struct {
	Fleet    *fleet.Fleet
	Nodes    []nixeval.Node
	Machines *machine.Manager
	Engines  []engine.Engine
	Recorded *state.State
	Desired  func() (map[string]nixeval.Closure, error) // evaluates the systems of the hive for the comparison; nil: no comparison
	Figures  bool                                       // also read the use of processors, memory and disk
	Health   bool                                       // also run the health checks, once
	Parallel int
	Send     event.Sink // receives the events about the nodes
}

// Observe observes nodes. The error joins the errors of nodes that cannot be inspected and of hypervisors that do not answer.
func Observe(ctx context.Context, q Query) (*ClusterStatus, error) {
	found, machinesErr := q.Machines.Status(ctx, q.Recorded)
	booted := slices.DeleteFunc(slices.Clone(q.Nodes), func(n nixeval.Node) bool { return found[n.Name].Off() })
	inspections := make(chan []fleet.Outcome[activate.Node], 1)
	go func() { inspections <- Nodes(ctx, q.Fleet, booted, q.Parallel, q.Send) }()
	var desired map[string]nixeval.Closure
	var evalErr error
	if q.Desired != nil {
		if desired, evalErr = q.Desired(); desired == nil {
			desired = map[string]nixeval.Closure{}
		}
	}
	inspected := <-inspections
	outcomes := map[string]fleet.Outcome[activate.Node]{}
	for _, o := range inspected {
		outcomes[o.Node.Name] = o
	}
	out := &ClusterStatus{Rows: make([]Status, len(q.Nodes)), Outside: map[string]string{}}
	rows := map[string]*Status{}
	for i, n := range q.Nodes {
		o, asked := outcomes[n.Name]
		if !asked {
			o = fleet.Outcome[activate.Node]{Node: n, Err: fleet.NewNoHostError(n, false)}
		}
		row := &out.Rows[i]
		rows[n.Name], *row = row, StatusOf(o, q.Recorded.Nodes[n.Name], desired, time.Now())
		row.Machine = found[n.Name]
		if row.Machine.Off() && row.System == Unreachable { // then the failed connection is no error
			row.System, row.Error = NotBooted, ""
		}
		row.Role, row.Address = n.Role, findAddress(ctx, q.Fleet, n, asked, row.Machine)
	}
	out.MembersErr = q.addDetails(ctx, inspected, rows)
	for _, o := range inspected {
		if text := describeOutside(q.Fleet.Hive(), o, rows[o.Node.Name].Member, out.MembersErr); text != "" {
			out.Outside[o.Node.Name] = text
			out.Notes = append(out.Notes, o.Node.Name+": "+text)
		}
	}
	if out.MembersErr != nil {
		out.Notes = append(out.Notes, out.MembersErr.Error())
	}
	return out, errors.Join(append([]error{machinesErr, evalErr}, fleet.Errors(inspected)...)...)
}

// describeOutside returns why a node that answers is no member of the cluster that it has in the hive, or an empty string.
func describeOutside(hive *nixeval.Hive, o fleet.Outcome[activate.Node], member *engine.Status, membersErr error) string {
	if text := DescribeEngineMismatch(hive, o); text != "" {
		return text
	}
	if o.Err == nil && membersErr == nil && member == nil && hive.Unit(o.Node.Unit).Deployment.Engine != nil {
		return "is no member of its cluster"
	}
	return ""
}

// addDetails asks the inspected nodes and the engines for all details at the same time, and adds them to the rows of the nodes. The
// error says why the state of members is unknown.
func (q Query) addDetails(ctx context.Context, inspected []fleet.Outcome[activate.Node], rows map[string]*Status) (membersErr error) {
	var answered, inCluster []nixeval.Node
	for _, o := range inspected {
		if o.Err != nil {
			continue
		}
		answered = append(answered, o.Node)
		if q.Fleet.Hive().Unit(o.Node.Unit).Deployment.Engine != nil {
			inCluster = append(inCluster, o.Node)
		}
	}
	var all sync.WaitGroup
	ask := func(nodes []nixeval.Node, add func(context.Context, nixeval.Node, *Status)) {
		all.Go(func() {
			fleet.Each(ctx, nodes, q.Parallel, func(ctx context.Context, n nixeval.Node) (struct{}, error) {
				add(ctx, n, rows[n.Name])
				return struct{}{}, nil
			})
		})
	}
	ask(inCluster, func(ctx context.Context, n nixeval.Node, row *Status) {
		for _, e := range q.Engines {
			if certified, ok := e.(engine.Certified); ok {
				found, _ := certified.Certificates(ctx, n.Name) // a node that does not answer has none
				row.Certificates = append(row.Certificates, found...)
			}
		}
	})
	if q.Figures {
		ask(answered, func(ctx context.Context, n nixeval.Node, row *Status) { row.Figures, _ = ReadFigures(ctx, q.Fleet, n) })
	}
	all.Go(func() {
		for node, reasons := range FailureReasons(ctx, q.Fleet, inspected, q.Parallel) {
			rows[node].Reasons = reasons
		}
	})
	if len(inCluster) > 0 { // without a node that answers, the engine cannot answer either
		all.Go(func() { membersErr = addMembers(ctx, q.Engines, rows) })
	}
	if q.Health {
		all.Go(func() {
			for _, o := range fleet.Each(ctx, answered, q.Parallel, func(ctx context.Context, n nixeval.Node) (struct{}, error) {
				checks, err := health.Of(ctx, q.Fleet, n)
				return struct{}{}, errors.Join(err, checks.Probe(ctx))
			}) {
				if o.Err != nil {
					rows[o.Node.Name].Unhealthy = failure.TextOn(o.Node.Name, o.Err)
				}
			}
		})
	}
	all.Wait()
	return membersErr
}

// findAddress returns the address of a node's machine, or otherwise the one at which nixbench asked the node, or an empty string.
func findAddress(ctx context.Context, f *fleet.Fleet, n nixeval.Node, asked bool, machine *machine.Status) string {
	if machine != nil && machine.Address.IsValid() {
		return machine.Address.String()
	}
	if !asked {
		return ""
	}
	host, err := f.Host(ctx, n) // the fleet already knows the host, so this makes no connection
	if err != nil {
		return ""
	}
	return host.Config().HostName
}
