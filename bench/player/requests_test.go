package player

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The difference has the most frequent requests of each program first, without those that were not sent in between. A program that was started again
// has counted from 0.
func TestSubtractRequests(t *testing.T) {
	before := []Request{{"api", false, "GET", "pods", 10}, {"api", false, "POST", "jobs", 5}, {"api", false, "PUT", "nodes", 7}, {"scheduler", true, "POST", "", 9}}
	after := []Request{
		{"scheduler", true, "POST", "", 4}, {"api", false, "GET", "pods", 10}, {"api", false, "POST", "jobs", 4}, {"api", false, "POST", "jobs", 4},
		{"api", false, "PUT", "nodes", 17}, {"api", false, "WATCH", "pods", 1},
	}
	want := []Request{{"api", false, "PUT", "nodes", 10}, {"api", false, "POST", "jobs", 3}, {"api", false, "WATCH", "pods", 1}, {"scheduler", true, "POST", "", 4}}
	if diff := cmp.Diff(want, SubtractRequests(before, after)); diff != "" {
		t.Error(diff)
	}
	byVerb := []Request{{"api", false, "GET", "", 10}, {"api", false, "PUT", "", 7}, {"api", false, "POST", "", 5}, {"scheduler", true, "POST", "", 9}}
	if diff := cmp.Diff(byVerb, SumVerbs(before)); diff != "" {
		t.Error(diff)
	}
	if got := before[1].Name() + ", " + before[3].Name(); got != "requests api POST jobs, requests scheduler POST" {
		t.Error(got)
	}
}
