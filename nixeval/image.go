package nixeval

import (
	"context"

	"github.com/nixbench/nixbench/deploy/event"
)

// Generic is the same evaluator without facts, for what has to be there before any are
// known. Of its events send gets what Nix and the hive say; it has no phases.
func (e *Evaluator) Generic(send event.Sink) *Evaluator {
	o := e.Options
	o.Facts = ""
	o.Send = func(ev event.Event) {
		switch ev.Kind {
		case event.Message, event.BuildStart, event.BuildEnd, event.BuildLog:
			send.Send(ev)
		}
	}
	g := New(o)
	e.mu.Lock()
	defer e.mu.Unlock()
	g.attr = e.attr
	return g
}

// Images evaluates what the machines of roles boot from, on hypervisors of a kind: vm
// or container.
func (e *Evaluator) Images(ctx context.Context, kind string, roles []string) (map[string]Closure, error) {
	names, err := nixJSON(roles)
	if err != nil {
		return nil, err
	}
	what, err := nixString(kind)
	if err != nil {
		return nil, err
	}
	var images map[string]Closure
	err = e.eval(ctx, event.Image, "h: h.images "+what+" "+names, &images)
	return images, err
}

// RealiseImage builds a role's given image, where that is a store path which is not
// there.
func (e *Evaluator) RealiseImage(ctx context.Context, role string) error {
	name, err := nixString(role)
	if err != nil {
		return err
	}
	var drvs []string
	if err := e.eval(ctx, event.Image, "h: h.imageDrvs "+name, &drvs); err != nil || len(drvs) == 0 {
		return err
	}
	closures := map[string]Closure{}
	for _, drv := range drvs {
		closures[drv] = Closure{Drv: drv, Out: drv}
	}
	_, err = e.Build(ctx, closures, "")
	return err
}
