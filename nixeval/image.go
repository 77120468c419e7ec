package nixeval

import (
	"cmp"
	"context"
	"errors"

	"github.com/nixbench/nixbench/deploy/event"
)

// WithoutFacts returns an evaluator for the same hive without facts (such as addresses). It is used for boot images, which are
// built before machines exist. The new evaluator sends only messages that e has not sent and build events, and no phases.
func (e *Evaluator) WithoutFacts() *Evaluator {
	d := *e
	d.Facts = ""
	d.Send = func(ev event.Event) {
		switch ev.Kind {
		case event.Message, event.BuildStart, event.BuildEnd, event.BuildLog:
			e.Send(ev)
		}
	}
	return &d
}

// WithFacts returns an evaluator for the same hive that reads the facts from file. If file is empty, it reads the same facts.
func (e *Evaluator) WithFacts(file string) *Evaluator {
	d := *e
	d.Facts = cmp.Or(file, e.Facts)
	return &d
}

// Images evaluates the boot images of roles, and returns the closure of the image for each role. kind is vm or container.
func (e *Evaluator) Images(ctx context.Context, kind string, roles []string) (map[string]Closure, error) {
	var images map[string]Closure
	err := e.eval(ctx, event.Image, "h: h.images "+nixString(kind)+" "+EncodeJSON(roles), &images)
	return images, errors.Join(err, checkClosures(images))
}

// RealiseImage builds the boot image that a role sets, if the image is a store path that does not exist yet.
func (e *Evaluator) RealiseImage(ctx context.Context, role string) error {
	var drvs []string
	if err := e.eval(ctx, event.Image, "h: h.imageDrvs "+nixString(role), &drvs); err != nil || len(drvs) == 0 {
		return err
	}
	closures := map[string]Closure{}
	for _, drv := range drvs {
		closures[drv] = Closure{Drv: drv, Out: drv}
	}
	if err := checkClosures(closures); err != nil {
		return err
	}
	_, err := e.Build(ctx, closures, "")
	return err
}
