package player

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/nixeval"
)

// Run has a time limit, RunLong has none that a trial reaches, and both need a node.
func TestRemote(t *testing.T) {
	limited := false
	r := &Remote{Engine: "slurm", Role: "controller", Client: "head-1"}
	r.Cluster.Run = func(ctx context.Context, node string, stdin io.Reader, argv ...string) ([]byte, error) {
		end, ok := ctx.Deadline()
		limited = ok && time.Until(end) <= CommandTimeout
		return []byte(node + " " + strings.Join(argv, " ")), nil
	}
	if out, err := r.Run(t.Context(), nil, "date", "+%s"); err != nil || string(out) != "head-1 date +%s" || !limited {
		t.Errorf("%q, %v, limited %t", out, err, limited)
	}
	if out, err := r.RunLong(t.Context(), "head-1", nil, "date"); err != nil || string(out) != "head-1 date" || limited {
		t.Errorf("%q, %v, limited %t", out, err, limited)
	}
	r.Client = ""
	if _, err := r.Run(t.Context(), nil, "date"); err == nil || err.Error() != "slurm: the hive has no node with the role controller" {
		t.Error(err)
	}
	r.Cluster.Members = []engine.Member{{Node: "other"}, {Node: "c-1", Engine: nixeval.Engine{Role: "controller"}}}
	if p := r.Place(); p != (Place{Commands: "c-1", Scheduler: "c-1"}) {
		t.Errorf("%+v", p)
	}
}
