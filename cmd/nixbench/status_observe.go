package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/nixbench/nixbench/deploy"
	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/inspect"
	"github.com/nixbench/nixbench/deploy/machine"
	"github.com/nixbench/nixbench/nixeval"
)

// observedStatus is what status shows: a row for each node, and notes about the cluster.
type observedStatus struct {
	rows       []inspect.Status
	notes      []string
	outside    map[string]string // the nodes that are no members of their clusters in the hive, with the reason
	membersErr error             // why the state of members is unknown, or nil
}

// observeStatus observes the nodes. The error joins the errors of nodes that cannot be inspected and of hypervisors
// that do not answer. The result is nil if nothing was observed.
func (a *app) observeStatus(e *nixeval.Evaluator, hive *nixeval.Hive, conns *fleet.Fleet, nodes []nixeval.Node, flags statusFlags) (*observedStatus, error) {
	recorded, err := a.loadState(e, hive)
	if err != nil {
		return nil, err
	}
	send := event.Sink(a.sendEvent)
	if flags.drift || flags.watch > 0 {
		send = nil // show the progress of the evaluation only, which takes longer, or none
	}
	manager := a.newMachines(e, hive, nil)
	manager.Send = a.sendEvent
	found, machinesErr := manager.Status(a.ctx, recorded)
	booted := slices.DeleteFunc(slices.Clone(nodes), func(n nixeval.Node) bool { return found[n.Name].Off() })
	inspections := make(chan []fleet.Outcome[activate.Node], 1)
	go func() { inspections <- inspect.Nodes(a.ctx, conns, booted, flags.parallel, send) }()
	var desired map[string]nixeval.Closure
	var evalErr error
	if flags.drift {
		desired, evalErr = deploy.Instantiate(a.ctx, e, hive, nodes, true)
		if desired == nil {
			desired = map[string]nixeval.Closure{}
		}
	}
	inspected := <-inspections
	clusterEngines, enginesErr := a.engines().Of(hive, conns)
	more := a.askForDetails(hive, conns, clusterEngines, inspected, flags)

	byName := map[string]fleet.Outcome[activate.Node]{}
	for _, o := range inspected {
		byName[o.Node.Name] = o
	}
	out := &observedStatus{rows: make([]inspect.Status, len(nodes)), notes: a.engineNotes(hive, time.Now()), outside: map[string]string{}, membersErr: more.membersErr}
	for i, n := range nodes {
		o, asked := byName[n.Name]
		if !asked {
			o = fleet.Outcome[activate.Node]{Node: n, Err: &fleet.NoHostError{Node: n}}
		}
		row := inspect.StatusOf(o, recorded.Nodes[n.Name], desired, time.Now()).WithMachine(found[n.Name])
		row.Role, row.Address = n.Role, findAddress(a.ctx, conns, n, asked, found[n.Name])
		row.Certificates, row.Reasons = more.certificates[n.Name], more.reasons[n.Name]
		row.Member, row.Figures = more.members[n.Name], more.figures[n.Name]
		out.rows[i] = row
		if text := describeOutside(hive, o, row.Member, more.membersErr); text != "" {
			out.outside[n.Name] = text
			out.notes = append(out.notes, n.Name+": "+text)
		}
	}
	if err := more.membersErr; err != nil {
		if a.json {
			a.sendEvent(event.Event{Kind: event.Message, Level: "warning", Time: time.Now(), Text: err.Error()})
		}
		out.notes = append(out.notes, err.Error())
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
func (a *app) askForDetails(hive *nixeval.Hive, conns *fleet.Fleet, clusterEngines []engine.Engine, inspected []fleet.Outcome[activate.Node], flags statusFlags) statusDetails {
	var answered, inCluster []nixeval.Node
	for _, o := range inspected {
		if o.Err != nil {
			continue
		}
		answered = append(answered, o.Node)
		if hive.Unit(o.Node.Unit).Deployment.Engine != nil {
			inCluster = append(inCluster, o.Node)
		}
	}
	var out statusDetails
	var all sync.WaitGroup
	all.Go(func() { out.certificates = inspect.Certificates(a.ctx, clusterEngines, inCluster, flags.parallel) })
	all.Go(func() { out.reasons = inspect.FailureReasons(a.ctx, conns, inspected, flags.parallel) })
	if len(inCluster) > 0 { // without a node that answers, the engine cannot answer either
		all.Go(func() { out.members, out.membersErr = inspect.Members(a.ctx, clusterEngines) })
	}
	if flags.wide() {
		all.Go(func() { out.figures = inspect.ReadFigures(a.ctx, conns, answered, flags.parallel) })
	}
	all.Wait()
	return out
}

// findAddress returns the address of a node's machine, or the one at which the node was asked. It is empty if it is not
// known.
func findAddress(ctx context.Context, conns *fleet.Fleet, n nixeval.Node, asked bool, machine *machine.Status) string {
	if machine != nil && machine.Address.IsValid() {
		return machine.Address.String()
	}
	if !asked {
		return ""
	}
	host, err := conns.Host(ctx, n) // the fleet has it already
	if err != nil {
		return ""
	}
	return host.Config().HostName
}
