package player

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"
)

// Run has a time limit, RunLong has none, and both need a node.
func TestShell(t *testing.T) {
	limited := false
	s := Shell{Engine: "slurm", Role: "controller", Node: "head-1", RunOn: func(ctx context.Context, node string, stdin io.Reader, argv ...string) ([]byte, error) {
		end, ok := ctx.Deadline()
		limited = ok && time.Until(end) <= CommandTimeout
		return []byte(node + " " + strings.Join(argv, " ")), nil
	}}
	for run, want := range map[*func(context.Context, io.Reader, ...string) ([]byte, error)]bool{new(s.Run): true, new(s.RunLong): false} {
		if out, err := (*run)(t.Context(), nil, "date", "+%s"); err != nil || string(out) != "head-1 date +%s" || limited != want {
			t.Errorf("%q, %v, limited %t", out, err, limited)
		}
	}
	s.Node = ""
	if _, err := s.Run(t.Context(), nil, "date"); err == nil || err.Error() != "slurm: the hive has no node with the role controller" {
		t.Error(err)
	}
}
