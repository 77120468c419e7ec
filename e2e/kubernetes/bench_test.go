package kubernetes

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nixbench/nixbench/bench/noise"
)

// BenchmarkCreateCluster creates a cluster of one control plane and two workers on an empty hypervisor, and prints how
// long each step took, with the run's critical path as explain shows it. It reports the processor time of the whole computer, too.
func BenchmarkCreateCluster(b *testing.B) {
	g := newGuestCluster(b)
	computer := noise.NewSampler(noise.Source{})
	defer computer.Close()
	var total time.Duration
	var busy float64
	for b.Loop() {
		g.dir = b.TempDir()
		g.writeHive(1, 2, "")
		began, before := time.Now(), computer.Sample()
		code, events, diag := g.runUnlogged("apply", "--json")
		ended, after := time.Now(), computer.Sample()
		if code != 0 {
			b.Fatalf("apply: exit code %d\n%s%s", code, events[max(0, len(events)-2000):], diag)
		}
		total, busy = total+ended.Sub(began), busy+*after.Busy-*before.Busy
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
	b.ReportMetric(busy/float64(b.N), "processor-s/cluster")
}
