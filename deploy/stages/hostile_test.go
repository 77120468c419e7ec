package stages

import (
	"context"
	"maps"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/deploy/inspect"
	"github.com/nixbench/nixbench/deploy/plan"
	"github.com/nixbench/nixbench/deploy/remote/sshtest"
	"github.com/nixbench/nixbench/nixeval"
)

// A compromised node can neither end nor delay the deployment of the other nodes, nor fill the memory. These tests do not run in
// parallel, because they measure the memory of the process.
func TestHostileNode(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(sshtest.Attacks)) {
		for _, command := range []string{"", "start", "confirm"} { // it becomes hostile before the inspection, or later
			t.Run(name+" "+command, func(t *testing.T) {
				w := newWorld(t, map[string]int{"w": 2})
				w.must(w.apply())
				n := w.machines["w-1"]
				w.revision++
				peak := peakMemory(t)
				begin := time.Now()
				n.mu.Lock()
				n.hostile, n.hostileTo = sshtest.Attacks[name], command
				n.mu.Unlock()
				results, err := w.apply()
				t.Logf("apply: %v, %d MiB, %.300v", time.Since(begin).Round(time.Millisecond), peak()>>20, err)
				if got := outcomes(results); !slices.Contains(got, "w-2 switched") || !slices.Contains(got, "w-1 failed") {
					t.Errorf("%v", got)
				}
				if command == "" {
					_, err := w.session(t.Context(), "reboot", func(d *Deployer) error {
						_, _ = d.Preview(t.Context(), w.hive, w.hive.Nodes, Options{Options: plan.Options{WithoutKeys: true}})
						for _, n := range w.hive.Nodes {
							_, _ = inspect.ReadFigures(t.Context(), d.Fleet, n)
						}
						_, err := d.ExecuteSteps(t.Context(), PlanReboot(inspect.Nodes(t.Context(), d.Fleet, w.hive.Nodes[:1], 0, nil), false), Options{RebootTimeout: 500 * time.Millisecond})
						return err
					})
					if err == nil {
						t.Error("rebooted")
					}
				}
				if took := time.Since(begin); took > 2*time.Minute || peak() > 256<<20 {
					t.Errorf("it took %v and %d MiB", took, peak()>>20)
				}
			})
		}
	}
}

// peakMemory returns a function that returns the largest heap and stack since the call.
func peakMemory(t *testing.T) func() uint64 {
	ctx := t.Context()
	samples := make(chan uint64)
	go func() {
		var largest uint64
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			largest = max(largest, m.HeapInuse+m.StackInuse)
			select {
			case samples <- largest:
			case <-time.After(10 * time.Millisecond):
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() uint64 { return <-samples }
}

// A panic in the code for a node is the error of this node.
func TestPanicOfANode(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]int{"w": 2})
	got := fleet.Each(t.Context(), w.hive.Nodes, 0, func(_ context.Context, n nixeval.Node) (int, error) {
		if n.Name == "w-1" {
			panic("a bug")
		}
		return 7, nil
	})
	if err := got[0].Err; err == nil || got[1].Value != 7 || got[1].Err != nil {
		t.Errorf("%+v", got)
	}
}
