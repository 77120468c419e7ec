package nixeval

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/nixbench/nixbench/deploy/event"
)

// Survey finds out everything about the hive that is cheap to know: names, roles,
// sizes, deployment options. It is one evaluation. Where a node's deployment
// options cannot be read, it finds out whose they are and puts the reason into
// [Hive.Broken]; only a hive that is wrong as a whole is an error.
func (e *Evaluator) Survey(ctx context.Context) (*Hive, error) {
	e.Send.Send(event.Event{Kind: event.PhaseStart, Phase: event.Survey, Text: e.Source.String()})
	hive, err := e.survey(ctx)
	end := event.Event{Kind: event.PhaseEnd, Phase: event.Survey, Failed: err != nil}
	if err == nil {
		end.Text = fmt.Sprintf("%s in %s", count(len(hive.Nodes), "node"), count(len(hive.Units), "unit"))
	}
	e.Send.Send(end)
	return hive, err
}

func (e *Evaluator) survey(ctx context.Context) (*Hive, error) {
	var s surveyed
	err := e.eval(ctx, event.Survey, "h: h.survey null", &s)
	if err == nil {
		return newHive(s, nil)
	}
	var ne *NixError
	if !errors.As(err, &ne) {
		return nil, err
	}
	// Is it the hive, or are it some of its nodes?
	if err := e.eval(ctx, event.Survey, "h: h.survey [ ]", &s); err != nil {
		return nil, asSetError(err)
	}
	s.Deployments = map[string]Deployment{}
	var mu sync.Mutex
	size := min(surveyChunk, max(1, len(s.Units)/splitInto)) // all at once has failed already
	broken, err := e.isolate(ctx, slices.Collect(slices.Chunk(s.Units, size)), func(ctx context.Context, units []string) error {
		part, err := e.surveyOnly(ctx, units)
		if err == nil {
			mu.Lock()
			defer mu.Unlock()
			maps.Copy(s.Deployments, part)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return newHive(s, broken)
}

// surveyChunk bounds the names in one argument, of which Linux takes 128 KiB.
const surveyChunk = 500

func (e *Evaluator) surveyOnly(ctx context.Context, units []string) (map[string]Deployment, error) {
	names, err := nixJSON(units)
	if err != nil {
		return nil, err
	}
	var s surveyed
	err = e.eval(ctx, event.Survey, "h: h.survey "+names, &s)
	return s.Deployments, err
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
