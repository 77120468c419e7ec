package rollout

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/nixbench/nixbench/deploy/check"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/engine/enginetest"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/plan"
	"github.com/nixbench/nixbench/nixeval"
)

// repairable is an engine whose condition holds if no unit is stopped and no member is drained, unless it is excepted.
type repairable struct{ enginetest.Fake }

func (e *repairable) Conditions(o engine.CheckOptions) []check.Condition {
	return []check.Condition{{Name: "works", Probe: func(ctx context.Context) error {
		if faults, _ := e.FindFaults(ctx, "head"); len(faults) > 0 {
			return errors.New("the engine does not answer")
		}
		members, err := e.Members(ctx)
		if err != nil {
			return err
		}
		for node, m := range members {
			if (m.Drained || m.Cordoned) && !slices.Contains(o.Except, node) {
				return errors.New(node + " is drained")
			}
		}
		return nil
	}}}
}

// At the end of a run, stopped units of the run's nodes are started and drains by nixbench are ended. What the run must not change is named within ten
// seconds, and ends the wait when it lasts.
func TestRepair(t *testing.T) {
	hive := &nixeval.Hive{Units: []nixeval.Unit{{Name: "c", Deployment: nixeval.Deployment{Engine: &nixeval.Engine{Kind: "batch"}}}}}
	for name, test := range map[string]struct {
		stopped map[string]string
		members map[string]engine.Status
		nodes   []string
		within  time.Duration
		calls   []string
		said    string
		wantErr string
	}{
		"works":              {nil, nil, []string{"head", "c-1"}, 0, nil, "", ""},
		"controller stopped": {map[string]string{"head": "d.service"}, nil, []string{"head", "c-1"}, 10 * time.Second, []string{"start head d.service"}, "head: d.service is stopped; nixbench starts it", ""},
		"not selected": {map[string]string{"head": "d.service"}, nil, []string{"c-1"}, 66 * time.Second, nil, "works: the engine does not answer; head: d.service is stopped",
			"works: not after 1m5s: the engine does not answer\nhead: d.service is stopped"},
		"leftover drain":          {nil, map[string]engine.Status{"c-1": {Ready: true, Drained: true}}, []string{"head", "c-1"}, 10 * time.Second, []string{"uncordon c-1"}, "c-1: it was still drained by nixbench", ""},
		"administrator's drain":   {nil, map[string]engine.Status{"c-1": {Ready: true, Cordoned: true}}, []string{"head", "c-1"}, 0, nil, "", ""},
		"drain of another's node": {nil, map[string]engine.Status{"c-1": {Ready: true, Drained: true}}, []string{"head"}, 10 * time.Minute, nil, "", "c-1 is drained"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := &repairable{enginetest.Fake{Stopped: test.stopped, Registered: map[string]engine.Status{"head": {Ready: true, OneByOne: true}}}}
				var said []string
				cluster := NewCluster([]engine.Engine{e}, Observer{Send: func(e event.Event) { said = append(said, e.Text) }})
				cluster.Members["head"] = plan.Member{Engine: e, Status: e.Registered["head"]}
				for node, status := range test.members {
					e.Registered[node] = status
					cluster.Members[node] = plan.Member{Engine: e, Status: status}
				}
				var nodes []nixeval.Node
				for _, n := range test.nodes {
					nodes = append(nodes, nixeval.Node{Name: n, Unit: "c"})
				}
				began := time.Now()
				err := cluster.Verify(t.Context(), hive, nodes, 0, nil, nil, 5*time.Minute)
				if took := time.Since(began); took > test.within {
					t.Errorf("the wait took %v", took)
				}
				if (err == nil) != (test.wantErr == "") || err != nil && !strings.Contains(err.Error(), test.wantErr) {
					t.Errorf("%v, want %q", err, test.wantErr)
				}
				if diff := cmp.Diff(test.calls, e.MemberCalls(), cmpopts.EquateEmpty()); diff != "" {
					t.Error(diff)
				}
				if text := strings.Join(said, "\n"); !strings.Contains(text, test.said) {
					t.Errorf("said\n%s\nwant %q", text, test.said)
				}
			})
		})
	}
}

// A wait for a member names what is wrong on its node within ten seconds, and ends when it lasts.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &enginetest.Fake{Stopped: map[string]string{"w-1": "d.service"}}
		began := time.Now()
		var said []string
		r := reporter{func(e event.Event) {
			if time.Since(began) <= 10*time.Second {
				said = append(said, e.Text)
			}
		}}
		err := r.runStep(t.Context(), e, []string{"w-1"}, "is uncordoned", func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) })
		if want := []string{"is uncordoned", "waits: w-1: d.service is stopped"}; !slices.Equal(said, want) {
			t.Errorf("said %q, want %q", said, want)
		}
		if took := time.Since(began); err == nil || !strings.HasSuffix(err.Error(), "\nw-1: d.service is stopped") || took > 66*time.Second {
			t.Errorf("%v after %v", err, took)
		}
	})
}
