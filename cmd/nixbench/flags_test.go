package main

import (
	"cmp"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/nixbench/nixbench/nixeval"
)

// Every command and flag of Colmena 0.5 is accepted. A flag without effect is named in the help of its
// command; what is different is in a line of docs/from-colmena.md that contains note.
func TestColmenaCommandLine(t *testing.T) {
	data, err := os.ReadFile("../../docs/from-colmena.md")
	if err != nil {
		t.Fatal(err)
	}
	guide := string(data)
	// the flags that apply, build and upload-keys of Colmena share
	deploy := []string{
		"--eval-node-limit 5", "--eval-node-limit auto", "--eval-node-limit 0", "--parallel 3", "-p 0", "--keep-result",
		"--verbose", "-v", "--no-keys", "--reboot", "--no-substitute", "--no-substitutes", "--no-gzip", "--build-on-target",
		"--no-build-on-target", "--force-replace-unknown-profiles", "--evaluator chunked", "--evaluator streaming",
		"--on web,@db,edge-*",
	}
	global := []string{
		"-f hive.nix", "--config hive.nix", "-f github:owner/repo", "--show-trace", "--impure", "--nix-option cores 2",
		"--legacy-flake-eval", "--experimental-flake-eval", "--color auto", "--color always", "--color never",
	}
	for _, c := range []struct {
		command string
		flags   []string
		note    string // text in docs/from-colmena.md, if the command has not exactly Colmena's meaning
	}{
		{"apply", append(deploy, ""), "armed"},
		{"apply build", deploy, ""},
		{"apply push", deploy, ""},
		{"apply switch", deploy, ""},
		{"apply boot", deploy, ""},
		{"apply test", deploy, ""},
		{"apply dry-activate", deploy, ""},
		{"apply upload-keys", deploy, ""},
		{"apply keys", deploy, ""},
		{"apply-local", []string{"", "--sudo", "--verbose", "-v", "--no-keys", "--node laptop"}, ""},
		{"apply-local build", nil, ""},
		{"apply-local push", nil, ""},
		{"apply-local boot", nil, ""},
		{"apply-local test", nil, ""},
		{"apply-local dry-activate", nil, ""},
		{"apply-local keys", nil, ""},
		{"build", deploy, ""},
		{"upload-keys", deploy, ""},
		{"eval", []string{"-E {...}:1", "--instantiate file.nix", "file.nix"}, ""},
		{"introspect", []string{"-E {...}:1", "--instantiate file.nix", "file.nix"}, ""},
		{"exec", []string{"-p 3 true", "--parallel 0 true", "-v true", "--verbose true", "--on @routers -- tcpdump -vni any ip[9]==89", "uptime -p"}, "`--root`"},
		{"repl", nil, ""},
		{"nix-info", nil, ""},
		{"gen-completions", []string{"bash", "zsh", "fish"}, ""},
		{"", []string{"--version", "-V", "--help", "-h"}, ""},
	} {
		if c.note != "" && !strings.Contains(guide, c.note) {
			t.Errorf("%s: docs/from-colmena.md does not contain %q", c.command, c.note)
		}
		lines := append(c.flags, "")
		for _, g := range global {
			lines = append(lines, "\x00"+g) // before the command
			if c.command != "" && c.command != "exec" {
				lines = append(lines, g)
			}
		}
		for _, flags := range lines {
			line := c.command + " " + flags
			if before, ok := strings.CutPrefix(flags, "\x00"); ok {
				line = before + " " + c.command
			}
			testAccepted(t, strings.Fields(line), guide)
		}
	}
}

// testAccepted checks that the command line is valid, and that its flags without effect are documented.
func testAccepted(t *testing.T, args []string, guide string) {
	t.Helper()
	root := newRootCommand(newApp(t.Context(), nil))
	root.InitDefaultHelpFlag()
	cmd, rest, err := root.Find(joinNixOptions(args))
	if err != nil {
		t.Errorf("%q: %v", args, err)
		return
	}
	err = cmd.ParseFlags(rest)
	if (err != nil) && err != pflag.ErrHelp {
		t.Errorf("%q: %v", args, err)
		return
	}
	needsArgs := cmd.Name() == "exec" || cmd.Name() == "gen-completions"
	if given := cmd.Flags().Args(); len(given) > 0 || !needsArgs {
		if err := cmd.ValidateArgs(given); err != nil {
			t.Errorf("%q: %v", args, err)
		}
	}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if f.Hidden && !strings.Contains(cmd.Long, "--"+f.Name) && !strings.Contains(guide, "`--"+f.Name+"`") {
			t.Errorf("%q: neither the help of %s nor docs/from-colmena.md contains --%s", args, cmd.Name(), f.Name)
		}
	})
}

// The values of --timeout: names, durations, and the smallest accepted ones.
func TestTimeouts(t *testing.T) {
	for text, want := range map[string]string{
		"--timeout confirm=20s,settle=0s --timeout settle=1m": "confirm 20s, settle 1m0s",
		"--timeout settle=0":   "confirm 1m0s, settle 0s",
		"--timeout confirm=1s": "the time limit confirm must be at least 5s",
		"--timeout settle=-1s": "the time limit settle must be at least 0s",
		"--timeout settle=x":   "invalid duration",
		"--timeout 5s":         "NAME=DURATION is expected, NAME being one of confirm, settle",
		"--timeout boot=5s":    "NAME=DURATION is expected, NAME being one of confirm, settle",
		"--rollback off":       "confirm 0s, settle 3s",
		"--rollback never":     "it must be one of node, off",
	} {
		var f rollingFlags
		set := pflag.NewFlagSet("", pflag.ContinueOnError)
		f.addArming(set, rollbackHelp, []string{"node", "off"})
		got := ""
		if err := set.Parse(strings.Fields(text)); err != nil {
			got = err.Error()
		} else {
			o, err := f.toOptions()
			got = fmt.Sprintf("confirm %v, settle %v, %v", o.Confirm, o.SettleTime, err)
		}
		if !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	var single time.Duration
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	addTimeouts(set, timeLimit{"check", &single, time.Minute, time.Second, "until all conditions hold"})
	for _, text := range []string{"--timeout=5m", "--timeout=check=5m"} {
		if err := set.Parse([]string{text}); err != nil || single != 5*time.Minute || set.Lookup("timeout").DefValue != "1m" {
			t.Errorf("%s: %v, %v", text, single, err)
		}
	}
}

// The work that --drain-delete allows a drain to delete.
func TestDrainFlags(t *testing.T) {
	for text, want := range map[string]string{
		"":                                    "",
		"--drain-delete local-data,bare-pods": "local-data bare-pods",
		"--drain-delete local-data --drain-delete bare-pods": "local-data bare-pods",
		"--no-drain":                           "",
		"--no-drain --drain-delete local-data": "error: --no-drain excludes --drain-delete, because nothing is drained",
		"--drain-delete pods":                  "error: invalid argument \"pods\" for \"--drain-delete\" flag: there is no work \"pods\"; there are bare-pods, local-data",
	} {
		var f rollingFlags
		set := pflag.NewFlagSet("", pflag.ContinueOnError)
		f.add(set)
		err := set.Parse(strings.Fields(text))
		o, invalid := f.toOptions()
		err = cmp.Or(err, invalid)
		got := strings.Join(o.Drain.Allowed, " ")
		if err != nil {
			got = "error: " + err.Error()
		}
		if got != want || o.WithoutDrain != strings.Contains(text, "--no-drain") {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

func TestNodeLimit(t *testing.T) {
	for text, want := range map[string]int{"auto": 0, "": -1, "3": 3, "0": nixeval.Unlimited, "unlimited": nixeval.Unlimited, "-1": -1, "x": -1, "1.5": -1} {
		var o nixeval.Options
		set := pflag.NewFlagSet("", pflag.ContinueOnError)
		addNixFlags(set, &o)
		err := set.Set("eval-node-limit", text)
		if err == nil && o.ChunkSize != want || (err != nil) != (want < 0) {
			t.Errorf("%q: %d, %v", text, o.ChunkSize, err)
		}
	}
}
