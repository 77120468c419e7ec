package stages

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/engine/enginetest"
	"github.com/nixbench/nixbench/deploy/node"
	"github.com/nixbench/nixbench/deploy/rollout"
	"github.com/nixbench/nixbench/nixeval"
)

// versionedEngine is an engine that can refuse a version.
type versionedEngine struct {
	enginetest.Fake
	asked  [][]string
	refuse error
}

func (p *versionedEngine) Versions(_ context.Context, nodes []string) (map[string]engine.Change, error) {
	p.asked = append(p.asked, nodes)
	changes := map[string]engine.Change{"w-1": {From: "1", To: "3"}}
	if p.refuse != nil {
		return changes, p.refuse
	}
	return changes, nil
}

// If an engine refuses a version, no node changes.
func TestRefusedVersion(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]int{"w": 2})
	p := &versionedEngine{}
	w.hive.Units[0].Deployment.Engine = &nixeval.Engine{Kind: "picky", Role: "w"}
	w.engines = rollout.Engines{"picky": func(engine.Cluster) engine.Engine { return p }}
	w.must(w.apply())
	if len(p.asked) > 0 {
		t.Errorf("before the first deployment the engine was asked about %q", p.asked)
	}
	for _, goal := range []node.Goal{node.Push, node.UploadKeys} {
		w.must(w.apply(func(o *Options) { o.Goal = goal }))
	}
	if len(p.asked) > 0 {
		t.Errorf("for goals that activate nothing the engine was asked about %q", p.asked)
	}

	p.refuse, p.Calls = engine.NewVersionError("2 first", "1 is not 3"), nil
	for _, keepGoing := range []bool{false, true} {
		steps := len(w.h.Log())
		results, err := w.apply(func(o *Options) { o.KeepGoing = keepGoing })
		if err == nil || err.Error() != "1 is not 3" {
			t.Errorf("keep going %v: %v", keepGoing, err)
		}
		wantTexts(t, outcomes(results), "w-1 skipped", "w-2 skipped")
		if did := slices.Concat(p.Calls, w.effects(steps)); len(did) > 0 {
			t.Errorf("keep going %v: the run did %q", keepGoing, did)
		}
	}

	w.onNix = func(_ context.Context, c nixeval.Command) error {
		if slices.Contains(c.Argv, "--realise") {
			return errors.New("the builder is broken")
		}
		return nil
	}
	_, err := w.apply(func(o *Options) { o.KeepGoing = true })
	if err == nil || !strings.Contains(err.Error(), "the builder is broken") || !strings.Contains(err.Error(), "1 is not 3") {
		t.Errorf("a refused version and a failed build: %v", err)
	}
	w.onNix = nil

	p.refuse, p.asked = nil, nil
	w.must(w.apply())
	if len(p.asked) != 1 || strings.Join(p.asked[0], " ") != "w-1 w-2" {
		t.Errorf("asked %q", p.asked)
	}
}

// A hive that does not evaluate fails before a booting machine is ready.
func TestBrokenHiveFailsBeforeBoot(t *testing.T) {
	t.Parallel()
	w, _ := newRunningCluster(t, 0, 2)
	w.h.PowerOff("demo-w-1")
	w.boot["w-1"], w.evaluationFails = 30*time.Second, true
	began := time.Now()
	_, err := w.apply(func(o *Options) { o.BootTimeout = time.Minute })
	if err == nil || !strings.Contains(err.Error(), "it does not evaluate") || time.Since(began) > 20*time.Second {
		t.Errorf("%v after %v", err, time.Since(began))
	}
}
