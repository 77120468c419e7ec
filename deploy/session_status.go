package deploy

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/inspect"
	"github.com/nixbench/nixbench/deploy/machine"
	"github.com/nixbench/nixbench/nixeval"
)

// ClusterStatus is what status shows: a row for each node, and notes about the cluster.
type ClusterStatus struct {
	Rows       []inspect.Status
	Notes      []string
	Outside    map[string]string // the nodes that are no members of their clusters in the hive, with the reason
	MembersErr error             // why the state of members is unknown, or nil
}

// Unhealthy returns the nodes that are not healthy, run another system than the deployed one, or are no members of their cluster.
func (c *ClusterStatus) Unhealthy() []string {
	var out []string
	for _, row := range c.Rows {
		if !row.Healthy() || c.Outside[row.Node] != "" {
			out = append(out, row.Node)
		}
	}
	return out
}

// StatusOptions are the options of [Session.Status].
type StatusOptions struct {
	Drift   bool // also evaluate the systems, and compare the nodes with them
	Figures bool // also read the use of processors, memory and disk
	Quiet   bool // send no events about the nodes
}

// Status observes the selected nodes. The error joins the errors of nodes that cannot be inspected and of hypervisors that do not answer. The
// result is nil if nothing was observed.
func (s *Session) Status(ctx context.Context, o StatusOptions) (*ClusterStatus, error) {
	recorded, err := s.State()
	if err != nil {
		return nil, err
	}
	send := event.Sink(s.Send)
	if o.Drift || o.Quiet {
		send = nil // show the progress of the evaluation only, which takes longer, or none
	}
	manager := *s.Machines
	manager.Open = s.request.Hypervisors(nil)
	found, machinesErr := manager.Status(ctx, recorded)
	booted := slices.DeleteFunc(slices.Clone(s.Nodes), func(n nixeval.Node) bool { return found[n.Name].Off() })
	inspections := make(chan []fleet.Outcome[activate.Node], 1)
	go func() { inspections <- inspect.Nodes(ctx, s.Fleet, booted, s.request.Parallel, send) }()
	var desired map[string]nixeval.Closure
	var evalErr error
	if o.Drift {
		desired, evalErr = Instantiate(ctx, s.Eval, s.Hive, s.Nodes, true)
		if desired == nil {
			desired = map[string]nixeval.Closure{}
		}
	}
	inspected := <-inspections
	engines, enginesErr := s.Engines()
	more := s.askForDetails(ctx, engines, inspected, o.Figures)

	byName := map[string]fleet.Outcome[activate.Node]{}
	for _, o := range inspected {
		byName[o.Node.Name] = o
	}
	out := &ClusterStatus{Rows: make([]inspect.Status, len(s.Nodes)), Notes: s.engineNotes(time.Now()), Outside: map[string]string{}, MembersErr: more.membersErr}
	for i, n := range s.Nodes {
		o, asked := byName[n.Name]
		if !asked {
			o = fleet.Outcome[activate.Node]{Node: n, Err: &fleet.NoHostError{Node: n}}
		}
		row := inspect.StatusOf(o, recorded.Nodes[n.Name], desired, time.Now()).WithMachine(found[n.Name])
		row.Role, row.Address = n.Role, s.findAddress(ctx, n, asked, found[n.Name])
		row.Certificates, row.Reasons = more.certificates[n.Name], more.reasons[n.Name]
		row.Member, row.Figures = more.members[n.Name], more.figures[n.Name]
		out.Rows[i] = row
		if text := describeOutside(s.Hive, o, row.Member, more.membersErr); text != "" {
			out.Outside[n.Name] = text
			out.Notes = append(out.Notes, n.Name+": "+text)
		}
	}
	if err := more.membersErr; err != nil {
		out.Notes = append(out.Notes, err.Error())
	}
	return out, errors.Join(append([]error{machinesErr, evalErr, enginesErr}, fleet.Errors(inspected)...)...)
}

// describeOutside returns why a node that answers is no member of the cluster that it has in the hive, or an empty string.
func describeOutside(hive *nixeval.Hive, o fleet.Outcome[activate.Node], member *inspect.Member, membersErr error) string {
	if text := inspect.DescribeEngine(hive, o); text != "" {
		return text
	}
	if o.Err == nil && membersErr == nil && member == nil && hive.Unit(o.Node.Unit).Deployment.Engine != nil {
		return "is no member of its cluster"
	}
	return ""
}

// statusDetails is what status asks of nodes that were inspected, by node name.
type statusDetails struct {
	certificates map[string][]engine.Certificate
	reasons      map[string]map[string]string
	figures      map[string]*inspect.Figures
	members      map[string]*inspect.Member
	membersErr   error
}

// askForDetails asks the nodes and the engines for all details at the same time.
func (s *Session) askForDetails(ctx context.Context, engines []engine.Engine, inspected []fleet.Outcome[activate.Node], figures bool) statusDetails {
	var answered, inCluster []nixeval.Node
	for _, o := range inspected {
		if o.Err != nil {
			continue
		}
		answered = append(answered, o.Node)
		if s.Hive.Unit(o.Node.Unit).Deployment.Engine != nil {
			inCluster = append(inCluster, o.Node)
		}
	}
	var out statusDetails
	var all sync.WaitGroup
	all.Go(func() { out.certificates = inspect.Certificates(ctx, engines, inCluster, s.request.Parallel) })
	all.Go(func() { out.reasons = inspect.FailureReasons(ctx, s.Fleet, inspected, s.request.Parallel) })
	if len(inCluster) > 0 { // without a node that answers, the engine cannot answer either
		all.Go(func() { out.members, out.membersErr = inspect.Members(ctx, engines) })
	}
	if figures {
		all.Go(func() { out.figures = inspect.ReadFigures(ctx, s.Fleet, answered, s.request.Parallel) })
	}
	all.Wait()
	return out
}

// findAddress returns the address of a node's machine, or the one at which the node was asked. It is empty if it is not
// known.
func (s *Session) findAddress(ctx context.Context, n nixeval.Node, asked bool, machine *machine.Status) string {
	if machine != nil && machine.Address.IsValid() {
		return machine.Address.String()
	}
	if !asked {
		return ""
	}
	host, err := s.Fleet.Host(ctx, n) // the fleet has it already
	if err != nil {
		return ""
	}
	return host.Config().HostName
}
