package deploy

import (
	"context"
	"slices"
	"strings"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// leaveOutAway connects to the selected nodes that may be away, and moves those at whose hosts nothing answers from s.Nodes to
// s.Away. A node that answers and refuses the login stays in s.Nodes: the command reports its error. Later steps use the
// connections.
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
	count := fleet.Count(len(s.Away), "node") + " away"
	if len(s.Nodes) == 0 {
		count += ", and no other node is selected"
	}
	event.Sink(s.Send).Note("skipped: %s: %s", count, strings.Join(list, ", "))
}
