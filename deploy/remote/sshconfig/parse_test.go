package sshconfig

import (
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
			h, err := parseHop(text)
			if err == nil && (!isPlainWord(h.host) || h.user != "" && !isPlainUser(h.user)) {
				t.Errorf("jump host %q gave %+v", text, h)
			}
		}
		e := expander{tokens: map[byte]string{'h': "host"}, getenv: func(string) string { return "value" }, home: "/home"}
		for key := range s {
			e.expandFile(s.get(key))
		}
		s.listWarnings()
		s.checkSupported()
	})
}

func TestParseHop(t *testing.T) {
	for text, want := range map[string]hop{
		"h": {"", "h", ""}, "u@h:22": {"u", "h", "22"}, "[h]:23": {"", "h", "23"}, "u@[::1]:24": {"u", "::1", "24"},
		"[::1]": {"", "::1", ""}, "fe80::1": {"", "fe80::1", ""}, "ssh://u@h:25/": {"u", "h", "25"}, "a@b@h": {"a@b", "h", ""},
	} {
		if got, err := parseHop(text); err != nil || got != want {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "@h", "h:", "h:0", "h:65536", "h:x", "[h", "[h]x", "[h]:", "-h", "u;@h", "a b"} {
		if got, err := parseHop(text); err == nil {
			t.Errorf("%q: %+v", text, got)
		}
	}
}
