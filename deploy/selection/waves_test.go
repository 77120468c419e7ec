package selection

import (
	"testing"

	"github.com/nixbench/nixbench/nixeval"
)

func TestWaves(t *testing.T) {
	for _, tc := range []struct {
		share string
		nodes int
		want  []int // sizes
	}{
		{"", 5, []int{5}},
		{"", 0, nil},
		{"2", 5, []int{2, 2, 1}},
		{"9", 5, []int{5}},
		{"25%", 8, []int{2, 2, 2, 2}},
		{"10%", 5, []int{1, 1, 1, 1, 1}},
		{"100%", 5, []int{5}},
		{"34%", 3, []int{1, 1, 1}},
	} {
		s, err := ParseShare(tc.share)
		if err != nil {
			t.Fatal(err)
		}
		waves := Waves(make([]nixeval.Node, tc.nodes), s)
		ok := len(waves) == len(tc.want)
		for i := range min(len(waves), len(tc.want)) {
			ok = ok && len(waves[i]) == tc.want[i]
		}
		if !ok {
			t.Errorf("%q of %d: %d waves, want %v", tc.share, tc.nodes, len(waves), tc.want)
		}
	}
	for _, bad := range []string{"0", "-1", "x", "0%", "101%", "%", "1.5"} {
		if _, err := ParseShare(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}
