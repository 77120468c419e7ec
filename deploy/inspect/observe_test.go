package inspect

import (
	"errors"
	"testing"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/nixeval"
)

// status --check fails unless every node is a ready member of the cluster that it has in the hive.
func TestCheckStatus(t *testing.T) {
	slurm := &nixeval.Engine{Kind: "slurm"}
	unknown := errors.New("no answer")
	ready := &engine.Status{Ready: true}
	for name, test := range map[string]struct {
		desired *nixeval.Engine
		running string
		member  *engine.Status
		err     error
		note    string
		healthy bool
	}{
		"no engine":       {nil, "", nil, nil, "", true},
		"ready":           {slurm, "slurm", ready, nil, "", true},
		"not ready":       {slurm, "slurm", &engine.Status{}, nil, "", false},
		"no member":       {slurm, "slurm", nil, nil, "is no member of its cluster", false},
		"unknown":         {slurm, "slurm", nil, unknown, "", true}, // the error is reported
		"no file":         {slurm, "", ready, nil, "", true},
		"forgotten":       {nil, "slurm", nil, nil, "runs slurm, and has no engine in the hive; is a --set scheduler=… missing?", false},
		"another engine":  {slurm, "flux", nil, nil, "runs flux, and has slurm in the hive; is a --set scheduler=… missing?", false},
		"another, unsure": {slurm, "flux", nil, unknown, "runs flux, and has slurm in the hive; is a --set scheduler=… missing?", false},
	} {
		hive := &nixeval.Hive{Units: []nixeval.Unit{{Name: "c", Deployment: nixeval.Deployment{Engine: test.desired}}}}
		o := fleet.Outcome[activate.Node]{Node: nixeval.Node{Name: "c-1", Unit: "c"}, Value: activate.Node{Engine: test.running}}
		note := describeOutside(hive, o, test.member, test.err)
		row := Status{Node: "c-1", System: AsDeployed, State: "running", Member: test.member}
		status := &ClusterStatus{Rows: []Status{row}, Outside: map[string]string{"c-1": note}}
		if note != test.note || (status.Unhealthy() == nil) != test.healthy {
			t.Errorf("%s: %q, %v", name, note, status.Unhealthy())
		}
	}
}
