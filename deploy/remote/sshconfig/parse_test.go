package sshconfig

import (
	"context"
	"fmt"
	"strings"
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
		for _, text := range strings.Split(s.get("proxyjump"), ",") {
			parseHop(text)
		}
		e := expander{tokens: map[string]string{"%h": "host"}, getenv: func(string) string { return "value" }, home: "/home"}
		for key := range s {
			e.expandFile(s.get(key))
		}
	})
}

func TestParseHop(t *testing.T) {
	for text, want := range map[string]string{
		"h": " h 0", "u@h:22": "u h 22", "[h]:23": " h 23", "u@[::1]:24": "u ::1 24",
		"[::1]": " ::1 0", "fe80::1": " fe80::1 0", "ssh://u@h:25/": "u h 25", "a@b@h": "a@b h 0",
	} {
		got, err := parseHop(text)
		var user string
		var port int
		if got.User != nil {
			user = *got.User
		}
		if got.Port != nil {
			port = *got.Port
		}
		if parts := fmt.Sprintf("%s %s %d", user, got.Host, port); err != nil || parts != want {
			t.Errorf("%q: %q, %v", text, parts, err)
		}
	}
	noSSH := Resolver{Run: func(_ context.Context, argv ...string) ([]byte, error) { return nil, fmt.Errorf("ran %q", argv) }}
	for _, text := range []string{"", "@h", "h:", "h:0", "h:65536", "h:x", "[h]:", "-h", "u;@h", "a b"} {
		if _, err := noSSH.resolveJump(t.Context(), Target{}, text, 0); err == nil || strings.Contains(err.Error(), "ran ") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
