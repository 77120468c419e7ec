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
		s := parseSettings(out)
		for _, n := range []string{"port", "serveralivecountmax"} {
			if v := s.number(n); v < 0 && len(s.errs) == 0 {
				t.Errorf("%s is %d", n, v)
			}
		}
		for _, file := range s.words("userknownhostsfile") {
			if file == "" {
				t.Error("an empty file name")
			}
		}
		s.tokens = map[string]string{"%h": "host", "%d": "/home"}
		for key := range s.values {
			s.expandFile(s.get(key))
		}
	})
}
