package nixeval

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"sync"

	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/nixeval/workload"
)

// Survey evaluates everything in the hive that is cheap to evaluate: names, roles, sizes and deployment options. If the deployment
// options of a [Unit] (a single node, or all nodes of a role) cannot be evaluated, it stores the error in [Hive.Broken]. It
// returns an error only if the hive itself cannot be evaluated. Without errors, one evaluation is enough for a hive of up to
// firstSurvey units. For more units it runs several Nix processes at once, because the deployment options of one unit need half a
// second and 80 MB.
func (e *Evaluator) Survey(ctx context.Context) (*Hive, error) {
	e.Send.Send(event.Event{Kind: event.PhaseStart, Phase: event.Survey, Text: e.Source.String()})
	hive, err := e.surveyHive(ctx)
	end := event.Event{Kind: event.PhaseEnd, Phase: event.Survey, Failed: err != nil}
	if err == nil {
		end.Text = event.Count(len(hive.Nodes), "node") + " in " + event.Count(len(hive.Units), "unit")
		if s := hive.Scheduler(); s != "" {
			end.Text += ", scheduler " + s
		}
	}
	e.Send.Send(end)
	return hive, err
}

// firstSurvey is how many units the first evaluation of a survey includes. If it included fewer, a second evaluation would be
// needed, whose start takes as long as these units do.
const firstSurvey = 12

// surveyHive does the work of Survey. The first evaluation includes the first units; if it fails, or there are more units,
// other evaluations include the rest.
func (e *Evaluator) surveyHive(ctx context.Context) (*Hive, error) {
	if e.Evaluated != nil && e.Evaluated.Survey != nil {
		return newHive(*e.Evaluated.Survey, nil)
	}
	var s, known surveyResult
	cache := openCache(ctx, e, "survey")
	if cache.load(&known) && !known.anyKey(Key.isDeleted) {
		findKeyFiles(e.Source.Dir, known)
		return newHive(known, nil)
	}
	broken, err := surveyUnits(ctx, e, &s)
	if err != nil {
		return nil, err
	}
	if len(broken) == 0 && !s.anyKey(Key.hasText) {
		cache.store(ctx, s)
	}
	findKeyFiles(e.Source.Dir, s)
	return newHive(s, broken)
}

// surveyUnits evaluates the hive and its units, and returns the errors of units.
func surveyUnits(ctx context.Context, e *Evaluator, s *surveyResult) (broken map[string]*NixError, err error) {
	err = e.eval(ctx, event.Survey, fmt.Sprintf("h: h.survey %d", firstSurvey), s)
	if err != nil {
		if !errors.As(err, new(*NixError)) {
			return nil, err
		}
		// Evaluate again without any unit, to find out whether the error is in the hive itself or in a unit.
		if err := e.eval(ctx, event.Survey, "h: h.survey [ ]", s); err != nil {
			return nil, toSetError(err)
		}
		s.Deployments = map[string]Deployment{}
	}
	var rest []string
	for _, u := range s.Units {
		if _, ok := s.Deployments[u]; !ok {
			rest = append(rest, u)
		}
	}
	if len(rest) == 0 {
		return nil, nil
	}
	plan := workload.Survey.Plan(len(rest), e.Workers, 0)
	var mu sync.Mutex
	return isolateFailures(ctx, rest, plan, func(ctx context.Context, units []string) error {
		var part surveyResult
		if err := e.eval(ctx, event.Survey, "h: h.survey "+EncodeJSON(units), &part); err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		maps.Copy(s.Deployments, part.Deployments)
		return nil
	})
}

// findKeyFiles replaces each key file that is in the store according to Nix, and is not there, by the file with the same name and
// content in the flake's folder. The reason is that Nix 2.35 and later do not copy the source of a flake to the store unless a
// derivation needs it. nixbench does not make Nix copy it, because all users can read the store. dir is the folder of the flake; its
// source may be a folder above, the top of a git repository.
func findKeyFiles(dir string, s surveyResult) {
	for _, d := range s.Deployments {
		for name, k := range d.Keys {
			if k.FileHash != "" && k.isDeleted() {
				_, rel, _ := strings.Cut(strings.TrimPrefix(*k.KeyFile, "/nix/store/"), "/")
				for _, top := range andAbove(dir) {
					file := filepath.Join(top, rel)
					data, err := durable.Read(file, durable.KeySize)
					if sum := sha256.Sum256(data); err == nil && hex.EncodeToString(sum[:]) == k.FileHash {
						k.KeyFile = &file
						break
					}
				}
			}
			k.FileHash = ""
			d.Keys[name] = k
		}
	}
}
