package page

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Each drawing is a file with its values.
func TestDrawings(t *testing.T) {
	drawings, err := Drawings(example(t))
	if err != nil {
		t.Fatal(err)
	}
	names := slices.Sorted(maps.Keys(drawings))
	if diff := cmp.Diff([]string{"bind_rate.svg", "throughput.svg", "wait_p50.svg", "wait_p99.svg"}, names); diff != "" {
		t.Error(diff)
	}
	for name, data := range drawings {
		checkXML(t, string(data))
		if strings.Contains(string(data), "ZgotmplZ") || strings.Contains(string(data), "var(") {
			t.Errorf("%s: %s", name, data)
		}
	}
	if data := string(drawings["throughput.svg"]); !strings.Contains(data, "series,nodes,mean,low,high,trials\ndefault,10,44.8") {
		t.Error(data)
	}
}

// The summary is JSON also if trials did not finish.
func TestSummarise(t *testing.T) {
	in := example(t)
	for i := range in.Trials {
		if in.Trials[i].Cell["nodes"] == "100" {
			in.Trials[i].Incomplete = true
		}
		in.Trials[i].Metrics["makespan"] = 10
		if in.Trials[i].Incomplete {
			delete(in.Trials[i].Metrics, "makespan")
		}
	}
	data, err := json.Marshal(Summarise(in))
	if err != nil {
		t.Fatal(err)
	}
	var got Summary
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	finished, unfinished := 0, 0
	for _, m := range got.Means {
		if m.Metric == "makespan" && m.Mean == nil && m.Unfinished == m.Trials {
			unfinished++
		}
		if m.Metric == "makespan" && m.Mean != nil && math.Abs(*m.Mean-10) < 1e-9 && m.Unit == "s" {
			finished++
		}
	}
	if finished != 4 || unfinished != 2 || len(got.Ratios) == 0 || got.Ratios[0].Answer == "" || len(got.Floor) == 0 || len(got.Noise) == 0 {
		t.Errorf("%d means did finish, %d did not; %d ratios, floor %+v", finished, unfinished, len(got.Ratios), got.Floor)
	}
}
