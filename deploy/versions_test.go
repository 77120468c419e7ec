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
