package inspect

import (
	"context"
	"fmt"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/nixeval"
)

// askEach calls ask for each node, and returns the answers by node name. A node that does not answer has none.
func askEach[T any](ctx context.Context, nodes []nixeval.Node, parallel int, ask func(context.Context, nixeval.Node) (T, error)) map[string]T {
	out := map[string]T{}
	for _, o := range fleet.Each(ctx, nodes, parallel, ask) {
		if o.Err == nil {
			out[o.Node.Name] = o.Value
		}
	}
	return out
}

// Nodes inspects every node with one login and one command for each node. It changes nothing. A node that cannot be reached does
// not delay the inspection of the others.
func Nodes(ctx context.Context, f *fleet.Fleet, nodes []nixeval.Node, parallel int, send event.Sink) []fleet.Outcome[activate.Node] {
	a := &activate.Activator{Send: f.EventSink()}
	send.Send(event.Event{Kind: event.PhaseStart, Phase: event.Connect, Total: len(nodes)})
	out := fleet.Each(ctx, nodes, parallel, func(ctx context.Context, n nixeval.Node) (activate.Node, error) {
		h, err := f.Host(ctx, n)
		if err != nil {
			return activate.Node{}, err
		}
		return a.Inspect(ctx, n.Name, h)
	})
	text := event.Count(len(nodes), "node")
	failed := len(fleet.Errors(out))
	if failed > 0 {
		text = fmt.Sprintf("%d of %s cannot be inspected", failed, text)
	}
	send.Send(event.Event{Kind: event.PhaseEnd, Phase: event.Connect, Total: len(nodes), Failed: failed > 0, Text: text})
	return out
}
