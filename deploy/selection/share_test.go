package selection

import "testing"

func TestShare(t *testing.T) {
	for _, tc := range []struct {
		share       string
		nodes, want int
	}{
		{"", 5, 5}, {"", 0, 0}, {"2", 5, 2}, {"9", 5, 5}, {"25%", 8, 2}, {"10%", 5, 1}, {"100%", 5, 5}, {"34%", 3, 1},
	} {
		if s, err := ParseShare(tc.share); err != nil || s.Of(tc.nodes) != tc.want {
			t.Errorf("%q of %d: %d, want %d; %v", tc.share, tc.nodes, s.Of(tc.nodes), tc.want, err)
		}
	}
	for _, bad := range []string{"0", "-1", "x", "0%", "101%", "%", "1.5"} {
		if _, err := ParseShare(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}
