package main

import (
	"strings"
	"testing"
)

// A cluster's name is a valid part of the names of machines and networks, and its range does not overlap with those of pods
// and services.
func TestNewClusterNames(t *testing.T) {
	for dir, want := range map[string]string{
		"/srv/Prod_1": "prod-1", "/": "cluster", "/srv/…": "cluster", "/a/.hidden.": "hidden",
		"/" + strings.Repeat("x", 31) + "-y": strings.Repeat("x", 31), "/a/cluster/": "cluster",
	} {
		if got, err := clusterNameOf(dir); got != want || err != nil {
			t.Errorf("%s: %q, %v; want %q", dir, got, err, want)
		}
	}
	ranges := map[string]bool{}
	for _, name := range []string{"cluster", "red", "blue", "prod", "staging", "test", "lab", "a", "b"} {
		cidr := networkRangeOf(name)
		if cidr < "10.128." || cidr > "10.239.255.0/24" || ranges[cidr] || networkRangeOf(name) != cidr {
			t.Errorf("%s: %s", name, cidr)
		}
		ranges[cidr] = true
	}
}
