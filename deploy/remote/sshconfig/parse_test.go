package sshconfig

import (
	"testing"
)

// FuzzSettings feeds the parser of `ssh -G` and everything that reads its
// result. The result must be safe to use for any input.
func FuzzSettings(f *testing.F) {
	f.Add("hostname a\nuser b\nport 22\nproxyjump u@h:2,[::1]:3\nuserknownhostsfile /a b /c\n")
	f.Add("port\nproxyjump ssh://u@h:1/\nconnecttimeout none\nhostkeyalgorithms a,,b\n\n x")
	f.Fuzz(func(t *testing.T, out string) {
		s, err := parseSettings([]byte(out))
		if err != nil {
			return
		}
		for _, n := range []string{"port", "serveralivecountmax"} {
			if v, err := s.number(n); err == nil && v < 0 {
				t.Errorf("%s is %d", n, v)
			}
		}
		for _, file := range s.files("userknownhostsfile") {
			if file == "" {
				t.Error("an empty file name")
			}
		}
		e := expander{tokens: map[string]string{"%h": "host"}, getenv: func(string) string { return "value" }, home: "/home"}
		for key := range s {
			e.expandFile(s.get(key))
		}
	})
}
