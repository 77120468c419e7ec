package deploy

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/machine"
	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/deploy/selection"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// selectNodes sets the selected nodes of the session. on has the parsed terms of --on of the request.
func selectNodes(s *Session, on selection.Selector) (err error) {
	r := s.request
	switch {
	case r.Pick != nil:
		s.Nodes = make([]nixeval.Node, 1)
		s.Nodes[0], err = r.Pick(s.Hive)
	case r.Nodes != NoNodes:
		s.Nodes, err = on.Select(s.Hive)
		if err != nil && len(s.Hive.Nodes) == 0 {
			if recorded, _ := s.State(); recorded != nil && len(recorded.Machines) > 0 {
				err = failure.WithHint(err, "nixbench destroy removes the machines of its former nodes")
			}
		}
	}
	if err != nil {
		return err
	}
	switch {
	case r.System == "":
	case len(s.Nodes) != 1:
		return failure.NewUsage("a system is deployed to one node, and %d nodes are selected", len(s.Nodes))
	case s.Nodes[0].Unit != s.Nodes[0].Name:
		return failure.NewUsage("the nodes of role %s share one system, so %s cannot have another; set roles.%[1]s.perNode = true", s.Nodes[0].Role, s.Nodes[0].Name)
	}
	if r.AllNodesOnly && len(r.On) == 0 && !s.Hive.Meta.AllowApplyAll {
		return failure.WithHint(failure.NewUsage("meta.allowApplyAll is false in %s, so --on must select the nodes", s.Eval.Source), "for all of them: --on '*'")
	}
	switch r.Nodes {
	case DeployedNodes:
		if len(s.Hive.Broken) == 0 {
			return s.SelectRemote()
		}
	case RemoteNodes:
		return s.SelectRemote()
	case BootedNodes:
		s.Nodes, err = bootedNodes(r, s.Hive, s.Nodes)
	}
	return err
}

// SelectRemote reduces the selected nodes to those that nixbench can connect to. It fails if a node's deployment options are broken, if two
// nodes have the same address, or if no node remains.
func (s *Session) SelectRemote() error {
	if err := CheckEvaluable(s.Hive, s.Nodes...); err != nil {
		return err
	}
	var out []nixeval.Node
	var local, configured []string
	taken := map[string]string{} // address → name of the node with that address
	for _, n := range s.Nodes {
		d := s.Hive.Unit(n.Unit).Deployment
		if n.Role == "" && len(d.TargetHosts) == 0 {
			local = append(local, n.Name)
			continue
		}
		if d.SSHConfig {
			configured = append(configured, n.Name)
		}
		port := 0
		if d.TargetPort != nil {
			port = *d.TargetPort
		}
		for _, host := range d.TargetHosts {
			at := fmt.Sprintf("%s:%d", host, port)
			if other := taken[at]; other != "" && other != n.Name {
				return failure.NewUsage("%s and %s have the same deployment.targetHost; each would replace the system of the other", other, n.Name)
			}
			taken[at] = n.Name
		}
		out = append(out, n)
	}
	send := event.Sink(s.Send)
	if len(local) > 0 {
		send.Note("omitted, because deployment.targetHost is null: %s; use apply-local on them", strings.Join(local, ", "))
	}
	if len(configured) > 0 {
		send.Note("hosts of the SSH configuration, with its address, port and user, because their nixosConfigurations do not declare deployment.targetHost: %s", strings.Join(configured, ", "))
	}
	if len(out) == 0 {
		return failure.NewUsage("all selected nodes have a null deployment.targetHost; use apply-local on each")
	}
	s.Nodes = out
	return nil
}

// bootedNodes returns those of the given nodes whose machines nixbench boots. For each other node it sends a note; if the user has
// named nodes with --on, it returns an error instead.
func bootedNodes(r Request, hive *nixeval.Hive, nodes []nixeval.Node) ([]nixeval.Node, error) {
	if err := CheckEvaluable(hive, nodes...); err != nil {
		return nil, err
	}
	booted := machine.Booted(hive, nodes)
	others := selection.Names(slices.DeleteFunc(slices.Clone(nodes), func(n nixeval.Node) bool {
		return slices.ContainsFunc(booted, func(b nixeval.Node) bool { return b.Name == n.Name })
	}))
	if len(others) == 0 {
		return booted, nil
	}
	text := "nixbench has not booted the machines of " + strings.Join(others, ", ")
	if len(r.On) > 0 || len(booted) == 0 {
		return nil, failure.WithHint(failure.NewUsage("%s: %s, so it cannot start them again", r.Command, text), "nixbench reboot restarts such nodes; nixbench exec --root -- systemctl poweroff shuts them down")
	}
	r.Send.Note("omitted, because %s", text)
	return booted, nil
}

// leaveOutAway connects to the selected nodes that may be away, and moves those at whose hosts nothing answers from s.Nodes to s.Away.
// A node that answers and refuses the login stays in s.Nodes: the command reports its error. Later steps use the connections.
func leaveOutAway(ctx context.Context, s *Session) {
	if s.request.MayBeAway == nil {
		return
	}
	asked := slices.DeleteFunc(slices.Clone(s.Nodes), func(n nixeval.Node) bool {
		d := s.Hive.Unit(n.Unit).Deployment
		return len(d.TargetHosts) == 0 || !s.request.MayBeAway(d) // apply starts a machine without a host; a broken unit has none, too
	})
	for _, o := range fleet.Each(ctx, asked, s.request.Parallel, func(ctx context.Context, n nixeval.Node) (struct{}, error) {
		host, err := s.Fleet.Host(ctx, n)
		if err == nil {
			_, err = host.TryConn(ctx)
		}
		return struct{}{}, err
	}) {
		if reason := remote.SilentReason(o.Err); reason != "" {
			s.Away = append(s.Away, state.NodeResult{Node: o.Node.Name, Unit: o.Node.Unit, Outcome: state.Away, Error: reason})
		}
	}
	s.Nodes = slices.DeleteFunc(slices.Clone(s.Nodes), func(n nixeval.Node) bool { return slices.Contains(s.awayNames(), n.Name) })
}

func (s *Session) awayNames() (names []string) {
	for _, r := range s.Away {
		names = append(names, r.Node)
	}
	return names
}

// noteAway sends a note that lists the nodes that are away, each with the reason, if there are any.
func (s *Session) noteAway() {
	if len(s.Away) == 0 {
		return
	}
	var list []string
	for i, r := range s.Away {
		text := r.Node
		if i == len(s.Away)-1 || s.Away[i+1].Error != r.Error {
			text += " (" + r.Error + ")"
		}
		list = append(list, text)
	}
	count := event.Count(len(s.Away), "node") + " away"
	if len(s.Nodes) == 0 {
		count += ", and no other node is selected"
	}
	event.Sink(s.Send).Note("skipped: %s: %s", count, strings.Join(list, ", "))
}
