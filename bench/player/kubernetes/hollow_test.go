package kubernetes

import (
	"strings"
	"testing"

	"github.com/nixbench/nixbench/bench/workload"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/nixeval"
)

// Pods run on hollow nodes only, and have the time that they run, if the hive has hollow nodes; other pods have neither.
func TestHollowPods(t *testing.T) {
	for settings, want := range map[string]bool{`{"hollow": 0}`: false, `{}`: false, `{"hollow": 100}`: true} {
		members := []engine.Member{{Node: "cp-1", Engine: nixeval.Engine{Role: "control-plane"}}, {Node: "w-1", Engine: nixeval.Engine{Role: "worker", Settings: []byte(settings)}}}
		o := objects{Options{Image: "i", Command: []string{"sleep", "{runtime}"}}, hasHollow(members)}
		list, err := o.jobList([]workload.Job{{ID: "j", Tasks: 1, Nodes: 1, CPUs: 1, Runtime: 0.5}})
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{
			`"nixbench.bench/runtime":"0.5s"`, `"matchExpressions":[{"key":"nixbench.dev/hollow","operator":"Exists"}]`,
			`"tolerations":[{"key":"nixbench.dev/hollow","operator":"Exists"}]`,
		} {
			if strings.Contains(string(list), part) != want {
				t.Errorf("settings %s: %s in the Job: want %v\n%s", settings, part, want, list)
			}
		}
	}
}
