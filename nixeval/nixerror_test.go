package nixeval

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/nixeval/nixlog"
)

func TestErrorText(t *testing.T) {
	for _, tc := range []struct {
		name string
		err  NixError
		want string
	}{
		{
			"old Nix: message, then place",
			NixError{Message: nixlog.Message{Text: " attribute 'foo' missing\n\n       at /h/hive.nix:7:45:\n\n            7|   f = lib.foo;\n             |       ^"}},
			"attribute 'foo' missing\n\nat /h/hive.nix:7:45:\n\n     7|   f = lib.foo;\n      |       ^",
		},
		{
			"new Nix: trace first; frames of ours go, the user's stay",
			NixError{Message: nixlog.Message{Text: "\n       … while evaluating attribute 'a'\n         at «string»:1:2:\n            1| x\n             | ^\n\n" +
				"       … while evaluating definitions from `/h/hive.nix':\n\n       (stack trace truncated; use '--show-trace' to show the full, detailed trace)\n\n" +
				"       error: infinite recursion encountered\n       at /l/modules.nix:1:1:\n            1| y"}},
			"infinite recursion encountered\nat /l/modules.nix:1:1:\n     1| y\n… while evaluating definitions from `/h/hive.nix':",
		},
		{
			"--show-trace leaves Nix's order",
			NixError{Message: nixlog.Message{Text: "… while x\n       at «string»:1:2:\n\n       error: boom"}, fullTrace: true},
			"… while x\nat «string»:1:2:\n\nerror: boom",
		},
		{
			"a place in eval.nix alone is no help",
			NixError{Message: nixlog.Message{Text: "called without required argument 'foo'\n\n       at «string»:61:80:\n\n           60|       called =\n           61|         x\n             |         ^\n           62|     in"}},
			"called without required argument 'foo'",
		},
		{
			"ours: without a trace",
			NixError{Message: nixlog.Message{Text: "… while x\n\n       error: nixbench: bad hive", Raw: "nixbench: bad hive"}},
			"bad hive",
		},
		{
			"a message of several lines keeps them",
			NixError{Message: nixlog.Message{Text: "\n       Failed assertions:\n       - one\n       - two"}},
			"Failed assertions:\n- one\n- two",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, tc.err.Error()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestHints(t *testing.T) {
	for raw, want := range map[string]string{
		"getting status of '/nix/store/k85w4zkbx6zkj8zk8glhra550ip78y08-source/b.nix': No such file or directory": "git add",
		"path '/nix/store/k85w4zkbx6zkj8zk8glhra550ip78y08-source/b.nix' does not exist":                          "git add",
		`Path 'b.nix' in the repository "/h" is not tracked by Git.`:                                              "git add",
		"infinite recursion encountered":                                                                          "--show-trace",
		"file 'nixpkgs' was not found in the Nix search path (add it using $NIX_PATH or -I)":                      "meta.nixpkgs",
		"access to absolute path '/etc' is forbidden in pure evaluation mode (use '--impure' to override)":        "--impure",
		"the path '~/foo' can not be resolved in pure mode":                                                       "--impure",
		"access to absolute path '/etc/hostname' is forbidden in pure eval mode (use '--impure' to override)":     "--impure",
		"'builtins.storePath' is not allowed in pure evaluation mode":                                             "--impure",
		"a 'aarch64-linux' with features {} is required to build '/nix/store/x.drv', but I am a 'x86_64-linux'":   "remote builder",
		"Cannot build '/nix/store/x.drv'.\nReason: platform mismatch\nRequired system: 'aarch64-linux'":           "remote builder",
		"getting status of '/h/a%20b': No such file or directory":                                                 "newer Nix",
		"The option `foo' does not exist. Definition values:":                                                     "spelling",
		"cannot connect to daemon at '/nix/var/nix/daemon-socket/socket': Connection refused":                     "daemon",
		"attribute 'foo' missing": "",
	} {
		got := (&NixError{Message: nixlog.Message{Raw: raw}}).Hint()
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s\n\thint %q, want %q in it", raw, got, want)
		}
	}
}

func TestSetErrorsAreUsage(t *testing.T) {
	for _, raw := range []string{
		"nixbench: --set roles.x.count=1: there is no roles.x",
		"A definition for option `roles.w.count' is not of type `int'. Definition values:\n- In `--set roles.w.count=x': \"x\"",
	} {
		if err := toSetError(&NixError{Message: nixlog.Message{Raw: raw}}); failure.KindOf(err) != failure.Usage {
			t.Errorf("%q is not taken for an error of --set", raw)
		}
	}
	if err := toSetError(&NixError{Message: nixlog.Message{Raw: "A definition for option `roles.w.count' … In `/h/hive.nix': 3"}}); failure.KindOf(err) == failure.Usage {
		t.Error("the hive's own error is taken for one of --set")
	}
}
