package packages

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestGroupNodes(t *testing.T) {
	one := func() *SystemDiff { return &SystemDiff{Bytes: 1, Units: &Files{Added: []string{"a"}}} }
	got := GroupNodes([]NodeDiff{{"b", one()}, {"same", nil}, {"c", &SystemDiff{Bytes: 1}}, {"a", one()}})
	want := []Group{{[]string{"b", "a"}, one()}, {[]string{"c"}, &SystemDiff{Bytes: 1}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
