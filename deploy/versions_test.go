package deploy

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/nixeval"
)

// picky is an engine that may refuse a version.
type picky struct {
	sulky
	asked  [][]string
	refuse *engine.VersionError
}

func (p *picky) Versions(_ context.Context, nodes []string) (map[string]engine.Change, error) {
	p.asked = append(p.asked, nodes)
	changes := map[string]engine.Change{"w-1": {From: "1", To: "3"}}
	if p.refuse != nil {
		return changes, p.refuse
	}
	return changes, nil
}

// What an engine refuses is not evaluated to its end, and nothing is done on any node.
func TestRefusedVersion(t *testing.T) {
	w := newWorld(t, map[string]int{"w": 2})
	p := &picky{}
	w.hive.Units[0].Deployment.Engine = &nixeval.Engine{Kind: "picky", Role: "w"}
	w.engines = Engines{"picky": func(engine.Cluster) engine.Engine { return p }}
	w.must(w.apply())
	if len(p.asked) > 0 {
		t.Errorf("before the first deployment it was asked %q", p.asked)
	}
	for _, goal := range []Goal{Push, UploadKeys} {
		w.must(w.apply(func(o *Options) { o.Goal = goal }))
	}
	if len(p.asked) > 0 {
		t.Errorf("for goals that run nothing it was asked %q", p.asked)
	}

	p.refuse, p.did = &engine.VersionError{Text: "1 is not 3", Way: "2 first"}, nil
	for _, keepGoing := range []bool{false, true} {
		steps, began := len(w.h.Log()), time.Now()
		w.evaluate = time.Minute
		results, err := w.apply(func(o *Options) { o.KeepGoing = keepGoing })
		if err == nil || err.Error() != "1 is not 3" || time.Since(began) > 30*time.Second {
			t.Errorf("keep going %v: %v after %v", keepGoing, err, time.Since(began))
		}
		if diff := cmp.Diff([]string{"w-1 skipped", "w-2 skipped"}, outcomes(results)); diff != "" {
			t.Error(diff)
		}
		if did := slices.Concat(p.did, w.effects(steps)); len(did) > 0 {
			t.Errorf("keep going %v: it did %q", keepGoing, did)
		}
	}

	p.refuse, p.asked, w.evaluate = nil, nil, 0
	w.must(w.apply())
	if len(p.asked) != 1 || strings.Join(p.asked[0], " ") != "w-1 w-2" {
		t.Errorf("asked %q", p.asked)
	}
}

// Nobody waits for a machine that boots to hear that the hive is wrong.
func TestWrongHiveWaitsForNoMachine(t *testing.T) {
	w, _ := lives(t, 0, 2)
	w.h.PowerOff("demo-w-1")
	w.boot["w-1"], w.evaluationFails = 30*time.Second, true
	began := time.Now()
	_, err := w.apply(func(o *Options) { o.BootTimeout = time.Minute })
	if err == nil || !strings.Contains(err.Error(), "it does not evaluate") || time.Since(began) > 20*time.Second {
		t.Errorf("%v after %v", err, time.Since(began))
	}
}

// What a killed run has left going on a member is over before its engine is asked.
func TestOutlast(t *testing.T) {
	w := newWorld(t, map[string]int{"w": 2})
	w.hive.Units[0].Deployment.Engine = &nixeval.Engine{Kind: "slow", Role: "w"}
	going := ""
	e := &slow{ask: func() {
		for _, node := range []string{"w-1", "w-2"} {
			m := w.machines[node]
			m.mu.Lock()
			if slices.Contains(m.run, "alive=yes") {
				going += node
			}
			m.mu.Unlock()
		}
	}}
	w.engines = Engines{"slow": func(engine.Cluster) engine.Engine { return e }}
	w.must(w.apply())
	m := w.machines["w-1"]
	m.mu.Lock()
	m.run = append(slices.DeleteFunc(m.run, func(l string) bool { return strings.HasPrefix(l, "phase=") || strings.HasPrefix(l, "outcome=") }),
		"phase=waiting", "alive=yes", "seen=60")
	m.mu.Unlock()
	e.asked = 0
	results, err := w.apply()
	if err != nil || e.asked == 0 || going != "" {
		t.Errorf("%v; it was asked %d times, with a run going on on %q", err, e.asked, going)
	}
	if diff := cmp.Diff([]string{"w-1 unchanged", "w-2 unchanged"}, outcomes(results)); diff != "" {
		t.Error(diff)
	}
}

// slow is an engine that looks around when it is asked.
type slow struct {
	sulky
	asked int
	ask   func()
}

func (s *slow) Members(context.Context) (map[string]engine.Status, error) {
	s.asked++
	s.ask()
	return s.members, nil
}
