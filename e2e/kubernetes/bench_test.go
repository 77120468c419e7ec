package kubernetes

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// BenchmarkCreateCluster creates a cluster of one control plane and two workers on an empty hypervisor, and prints how
// long each step took, with the run's critical path as explain shows it.
func BenchmarkCreateCluster(b *testing.B) {
	g := newGuestCluster(b)
	var total time.Duration
	for b.Loop() {
		g.dir = b.TempDir()
		g.writeHive(1, 2, "")
		began := time.Now()
		code, events, diag := g.runUnlogged("apply", "--json")
		ended := time.Now()
		if code != 0 {
			b.Fatalf("apply: exit code %d\n%s", code, diag)
		}
		total += ended.Sub(began)
		g.checkNodes("cp-1 Ready;w-1 Ready;w-2 Ready;")
		_, text, _ := g.runUnlogged("explain")
		timeline := g.readTimeline(events, "cp-1", "w-1", "w-2")
		// b.Log would cut the text.
		fmt.Printf("\n%s\n%s\n%s\n", formatWaterfall(began, ended, timeline), formatTimeline(began, timeline), strings.TrimSpace(text))
		if code, out, diag := g.runUnlogged("destroy", "--yes"); code != 0 {
			b.Fatalf("destroy: exit code %d\n%s%s", code, out, diag)
		}
	}
	b.ReportMetric(total.Seconds()/float64(b.N), "s/cluster")
}
