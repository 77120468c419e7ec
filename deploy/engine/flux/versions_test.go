package flux

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nixbench/nixbench/deploy/failure"
)

// The running brokers are 0.88.0.
func TestVersions(t *testing.T) {
	all := []string{"head", "c-1", "c-2"}
	for name, test := range map[string]struct {
		head, compute string // the versions in the hive
		nodes         []string
		want          string // the changes, or the beginning of the error
	}{
		"no change":             {"0.88.0", "0.88.0", all, "map[]"},
		"all nodes":             {"0.89.0", "0.89.0", all, "map[c-1:{0.88.0 0.89.0} c-2:{0.88.0 0.89.0} head:{0.88.0 0.89.0}]"},
		"the leader alone":      {"0.89.0", "0.89.0", all[:1], "flux: after this run c-1 would have version 0.88.0, and the leader head version 0.89.0"},
		"a compute node alone":  {"0.89.0", "0.89.0", all[1:2], "flux: after this run c-1 would have version 0.89.0, and the leader head version 0.88.0"},
		"two versions":          {"0.89.0", "0.88.0", all, "flux: after this run c-1 would have version 0.88.0, and the leader head version 0.89.0"},
		"a new node, unchanged": {"0.88.0", "0.88.0", all[2:], "map[]"},
	} {
		i := newInstance(t, "c-1", "c-2")
		e := i.engine("c-1", "c-2")
		for i, m := range e.Cluster.Members {
			version := test.compute
			if m.Role == Leader {
				version = test.head
			}
			e.Cluster.Members[i].Settings = []byte(`{"version": "` + version + `"}`)
		}
		changes, err := e.Versions(t.Context(), test.nodes)
		switch {
		case err == nil && fmt.Sprint(changes) != test.want:
			t.Errorf("%s: %v, want %s", name, changes, test.want)
		case err != nil && (!strings.HasPrefix(err.Error(), test.want) || failure.Hint(err) == "" || failure.KindOf(err) != failure.Activation):
			t.Errorf("%s: %v, want %s", name, err, test.want)
		}
	}
}

// A leader that does not answer may be repaired by the run.
func TestVersionsWithoutAnswer(t *testing.T) {
	i := newInstance(t, "c-1")
	i.fails["flux getattr"] = "Unable to connect to Flux"
	if changes, err := i.engine("c-1").Versions(t.Context(), []string{"head"}); len(changes) > 0 || err != nil {
		t.Errorf("%v, %v", changes, err)
	}
}
