package nixeval

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"

	"github.com/nixbench/nixbench/deploy/event"
)

// Survey evaluates everything in the hive that is cheap to evaluate: names, roles, sizes and
// deployment options. If the deployment options of a [Unit] (a single node, or all nodes of a role)
// cannot be evaluated, it stores the error in [Hive.Broken]. It returns an error only if the hive itself cannot be evaluated. It needs one
// evaluation if there are no errors.
func (e *Evaluator) Survey(ctx context.Context) (*Hive, error) {
	e.Send.Send(event.Event{Kind: event.PhaseStart, Phase: event.Survey, Text: e.Source.String()})
	hive, err := e.surveyHive(ctx)
	end := event.Event{Kind: event.PhaseEnd, Phase: event.Survey, Failed: err != nil}
	if err == nil {
		end.Text = fmt.Sprintf("%s in %s", countNoun(len(hive.Nodes), "node"), countNoun(len(hive.Units), "unit"))
	}
	e.Send.Send(end)
	return hive, err
}

func (e *Evaluator) surveyHive(ctx context.Context) (*Hive, error) {
	var s surveyResult
	err := e.eval(ctx, event.Survey, "h: h.survey null", &s)
	if err == nil {
		return newHive(s, nil)
	}
	var ne *NixError
	if !errors.As(err, &ne) {
		return nil, err
	}
	// Evaluate without units, to determine whether the error is in the hive itself or in units.
	if err := e.eval(ctx, event.Survey, "h: h.survey [ ]", &s); err != nil {
		return nil, toSetError(err)
	}
	s.Deployments = map[string]Deployment{}
	var mu sync.Mutex
	size := min(surveyChunk, max(1, len(s.Units)/splitInto)) // the evaluation of all units has already failed
	broken, err := e.isolateFailures(ctx, splitUnits(s.Units, size), planSurvey(findResources(), size, e.Workers), func(ctx context.Context, units []string) error {
		part, err := e.surveyUnits(ctx, units)
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

// surveyChunk is the maximum number of unit names in one command-line argument, because Linux
// limits the length of an argument to 128 KiB.
const surveyChunk = 500

func (e *Evaluator) surveyUnits(ctx context.Context, units []string) (map[string]Deployment, error) {
	names, err := nixJSON(units)
	if err != nil {
		return nil, err
	}
	var s surveyResult
	err = e.eval(ctx, event.Survey, "h: h.survey "+names, &s)
	return s.Deployments, err
}

func countNoun(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
