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
	more := q.askForDetails(ctx, inspected)

	byName := map[string]fleet.Outcome[activate.Node]{}
	for _, o := range inspected {
		byName[o.Node.Name] = o
	}
	out := &ClusterStatus{Rows: make([]Status, len(q.Nodes)), Outside: map[string]string{}, MembersErr: more.membersErr}
	for i, n := range q.Nodes {
		o, asked := byName[n.Name]
		if !asked {
			o = fleet.Outcome[activate.Node]{Node: n, Err: fleet.NewNoHostError(n, false)}
		}
		row := StatusOf(o, q.Recorded.Nodes[n.Name], desired, time.Now())
		row.Machine = found[n.Name]
		if row.Machine.Off() && row.System == Unreachable { // then the failed connection is no error
			row.System, row.Error = NotBooted, ""
		}
		row.Role, row.Address = n.Role, findAddress(ctx, q.Fleet, n, asked, found[n.Name])
		row.Certificates, row.Reasons = more.certificates[n.Name], more.reasons[n.Name]
		row.Member, row.Figures, row.Unhealthy = more.members[n.Name], more.figures[n.Name], more.unhealthy[n.Name]
		if row.Member != nil && row.Machine.Off() { // the cluster notices this only after a while
			row.Member.Ready = false
		}
		out.Rows[i] = row
		if text := describeOutside(q.Fleet.Hive(), o, row.Member, more.membersErr); text != "" {
			out.Outside[n.Name] = text
			out.Notes = append(out.Notes, n.Name+": "+text)
		}
	}
	if err := more.membersErr; err != nil {
		out.Notes = append(out.Notes, err.Error())
	}
	return out, errors.Join(append([]error{machinesErr, evalErr}, fleet.Errors(inspected)...)...)
}

// describeOutside returns why a node that answers is no member of the cluster that it has in the hive, or an empty string.
func describeOutside(hive *nixeval.Hive, o fleet.Outcome[activate.Node], member *Member, membersErr error) string {
	if text := DescribeEngineMismatch(hive, o); text != "" {
		return text
	}
	if o.Err == nil && membersErr == nil && member == nil && hive.Unit(o.Node.Unit).Deployment.Engine != nil {
		return "is no member of its cluster"
	}
	return ""
}

// statusDetails are the details that nixbench status reads from inspected nodes and their engines, by node name.
type statusDetails struct {
	certificates map[string][]engine.Certificate
	reasons      map[string]map[string]string
	figures      map[string]*Figures
	members      map[string]*Member
	membersErr   error
	unhealthy    map[string]string // the errors of the health checks
}

// askForDetails asks the nodes and the engines for all details at the same time.
func (q Query) askForDetails(ctx context.Context, inspected []fleet.Outcome[activate.Node]) statusDetails {
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
	var out statusDetails
	var all sync.WaitGroup
	all.Go(func() { out.certificates = Certificates(ctx, q.Engines, inCluster, q.Parallel) })
	all.Go(func() { out.reasons = FailureReasons(ctx, q.Fleet, inspected, q.Parallel) })
	if len(inCluster) > 0 { // without a node that answers, the engine cannot answer either
		all.Go(func() { out.members, out.membersErr = Members(ctx, q.Engines) })
	}
	if q.Figures {
		all.Go(func() { out.figures = ReadFigures(ctx, q.Fleet, answered, q.Parallel) })
	}
	if q.Health {
		all.Go(func() {
			out.unhealthy = map[string]string{}
			for _, o := range fleet.Each(ctx, answered, q.Parallel, func(ctx context.Context, n nixeval.Node) (struct{}, error) {
				checks, err := health.Of(ctx, q.Fleet, n)
				return struct{}{}, errors.Join(err, checks.Probe(ctx))
			}) {
				if o.Err != nil {
					out.unhealthy[o.Node.Name] = failure.TextOn(o.Node.Name, o.Err)
				}
			}
		})
	}
	all.Wait()
	return out
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
