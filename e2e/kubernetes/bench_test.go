package kubernetes

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// BenchmarkCreateCluster creates a cluster of one control plane and two workers on an empty hypervisor, and prints how
// long each step took, with the run's critical path as explain shows it. It reports the processor time of the whole computer, too.
func BenchmarkCreateCluster(b *testing.B) {
	g := newGuestCluster(b)
	var total, busy time.Duration
	for b.Loop() {
		g.dir = b.TempDir()
		g.writeHive(1, 2, "")
		began, busyBefore := time.Now(), readProcessorTime(b)
		code, events, diag := g.runUnlogged("apply", "--json")
		ended := time.Now()
		if code != 0 {
			b.Fatalf("apply: exit code %d\n%s%s", code, events[max(0, len(events)-2000):], diag)
		}
		total, busy = total+ended.Sub(began), busy+readProcessorTime(b)-busyBefore
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
	b.ReportMetric(busy.Seconds()/float64(b.N), "processor-s/cluster")
}

// readProcessorTime returns how long the processors of this computer have worked since its start.
func readProcessorTime(b *testing.B) time.Duration {
	b.Helper()
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		b.Fatal(err)
	}
	var user, nice, system time.Duration
	if _, err := fmt.Sscanf(string(stat), "cpu %d %d %d ", &user, &nice, &system); err != nil {
		b.Fatalf("/proc/stat: %v", err)
	}
	return (user + nice + system) * 10 * time.Millisecond
}
