package nixeval

import (
	"encoding/json"
	"slices"
	"testing"
)

func TestTargetHostsJSON(t *testing.T) {
	for _, tc := range []struct {
		in   string
		want TargetHosts
		out  string
	}{
		{`null`, nil, `null`},
		{`"a"`, TargetHosts{"a"}, `"a"`},
		{`["a"]`, TargetHosts{"a"}, `"a"`},
		{`["a","b"]`, TargetHosts{"a", "b"}, `["a","b"]`},
	} {
		got := TargetHosts{"old"}
		if err := json.Unmarshal([]byte(tc.in), &got); err != nil || !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, error %v", tc.in, got, err)
		}
		if out, err := json.Marshal(got); err != nil || string(out) != tc.out {
			t.Errorf("%s: encoded as %s, error %v", tc.in, out, err)
		}
	}
	for _, in := range []string{`3`, `[3]`, `{}`} {
		if err := json.Unmarshal([]byte(in), new(TargetHosts)); err == nil {
			t.Errorf("%s was accepted", in)
		}
	}
}
