package closure

import (
	"slices"
	"testing"
)

func TestWarnings(t *testing.T) {
	var got []string
	l := newNixLog(func(text string) { got = append(got, text) })
	for _, line := range []string{
		`@nix {"action":"msg","level":1,"msg":"\u001b[35;1mwarning:\u001b[0m the disk is old"}`,
		`@nix {"action":"msg","level":1,"msg":"warning: ignoring the client-specified setting 'cores', because it is a restricted setting"}`,
		`@nix {"action":"msg","level":3,"msg":"warning: only with --verbose"}`,
		`@nix {"action":"msg","level":0,"msg":"error: no","raw_msg":"no"}`,
		"plain",
	} {
		l.HandleLine(line)
	}
	if !slices.Equal(got, []string{"the disk is old"}) || l.Output() != "no\nplain" {
		t.Errorf("warnings %q, output %q", got, l.Output())
	}
}
