package packages

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAddNode(t *testing.T) {
	one := func() *SystemDiff { return &SystemDiff{Bytes: 1, Units: &Files{Added: []string{"a"}}} }
	got := AddNode(nil, "b", one())
	got = AddNode(got, "same", nil)
	got = AddNode(got, "c", &SystemDiff{Bytes: 1})
	got = AddNode(got, "a", one())
	want := []Group{{[]string{"b", "a"}, one()}, {[]string{"c"}, &SystemDiff{Bytes: 1}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
