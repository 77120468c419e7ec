package deploy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nixbench/nixbench/e2e/fixture"
	"github.com/nixbench/nixbench/e2e/lab"
)

// sandbox is the folder of a hive with its state, the environment of nixbench, and the lab whose
// machines are the hive's nodes.
type sandbox struct {
	testing.TB
	l      *lab.Lab
	dir    string
	env    []string
	before []string // the event files of runs that existed when nixbench was last started
}

func newSandbox(t testing.TB, l *lab.Lab) *sandbox {
	dir := t.TempDir()
	home := filepath.Join(dir, "home")
	hive := filepath.Join(dir, "hive")
	for _, d := range []string{home, hive} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return &sandbox{TB: t, l: l, dir: hive, env: append(os.Environ(),
		"GORACE=atexit_sleep_ms=0", "HOME="+home, "NIX_PATH=nixpkgs="+nixpkgs, "NIX_CONFIG="+fixture.NixConfig, "SSH_AUTH_SOCK=", "NO_COLOR=1")}
}

// forSubtest returns a copy of the sandbox that reports failures to t.
func (s *sandbox) forSubtest(t testing.TB) *sandbox {
	sub := *s
	sub.TB = t
	return &sub
}

// head begins every hive: nodes that SSH reaches, and the functions once and which.
const head = `let
  # A oneshot unit that runs a script.
  once = script: { wantedBy = [ "multi-user.target" ]; serviceConfig = { Type = "oneshot"; RemainAfterExit = true; ExecStart = "/bin/sh -c '${script}'"; }; };
  # The content of /etc/which, by which checkWhich recognises a system.
  which = text: { environment.etc."which".text = text; };
in {
  meta.nixpkgs = import <nixpkgs> { };
  defaults = { name, lib, ... }: {
    deployment.sshOptions = [ "-F" "%s" ];
    networking.firewall.enable = lib.mkDefault false;
    networking.hostName = "";
    system.stateVersion = "25.05";
    nix.settings.trusted-users = [ "root" "deploy" "askpass" ];
  };
`

// writeHive writes hive.nix with these nodes.
func (s *sandbox) writeHive(nodes string) {
	s.Helper()
	s.writeFile("hive.nix", fmt.Sprintf(head, s.l.SSHConfig)+nodes+"\n}\n")
}

func (s *sandbox) writeFile(name, text string) {
	s.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600); err != nil {
		s.Fatal(err)
	}
}

// runResult is the output, exit code and duration of a run of nixbench.
type runResult struct {
	out, err string
	code     int
	took     time.Duration
}

// process is a run of nixbench that may not have ended.
type process struct {
	*exec.Cmd
	s        *sandbox
	began    time.Time
	out, err bytes.Buffer
}

func (s *sandbox) start(args ...string) *process {
	s.Helper()
	return s.startTo(io.Discard, io.Discard, args...)
}

// startTo is start; the output is also written to out and err while nixbench runs.
func (s *sandbox) startTo(out, err io.Writer, args ...string) *process {
	s.Helper()
	s.before = s.eventFiles()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	s.Cleanup(cancel)
	p := &process{Cmd: s.l.Command(ctx, program, args...), s: s, began: time.Now()}
	p.Dir, p.Env, p.Stdout, p.Stderr = s.dir, s.env, io.MultiWriter(&p.out, out), io.MultiWriter(&p.err, err)
	if err := p.Start(); err != nil {
		s.Fatal(err)
	}
	return p
}

// end waits until nixbench has ended.
func (p *process) end() runResult {
	p.s.Helper()
	err := p.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		p.s.Fatalf("%v\n%s", err, p.err.String())
	}
	code := p.ProcessState.ExitCode()
	if status, ok := p.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		code = 128 + int(status.Signal())
	}
	got := runResult{out: p.out.String(), err: p.err.String(), code: code, took: time.Since(p.began).Round(10 * time.Millisecond)}
	p.s.Logf("nixbench %s: exit %d after %v", strings.Join(p.Args[5:], " "), got.code, got.took)
	if strings.Contains(got.err, "DATA RACE") {
		p.s.Error(got.err)
	}
	return got
}

// run runs nixbench, which must end with this exit code.
func (s *sandbox) run(code int, args ...string) runResult {
	s.Helper()
	got := s.start(args...).end()
	if got.code != code {
		s.Fatalf("nixbench %s: exit %d, want %d\n%s%s", strings.Join(args, " "), got.code, code, got.out, got.err)
	}
	return got
}

// says checks that the output contains these texts.
func (s *sandbox) says(got runResult, want ...string) {
	s.Helper()
	for _, w := range want {
		if !strings.Contains(got.out+got.err, w) {
			s.Errorf("no %q in\n%s%s", w, got.out, got.err)
		}
	}
}

// saysNot checks that the output contains none of these texts.
func (s *sandbox) saysNot(got runResult, want ...string) {
	s.Helper()
	for _, w := range want {
		if strings.Contains(got.out+got.err, w) {
			s.Errorf("%q is in\n%s%s", w, got.out, got.err)
		}
	}
}

// runOn runs a shell script on a node: on the machine with the node's name, up to the first dot.
func (s *sandbox) runOn(node, script string) string {
	s.Helper()
	machine, _, _ := strings.Cut(node, ".")
	return s.l.Run(s, machine, script)
}

// checkWhich checks the content of /etc/which on each node; the arguments have the form `node=text`.
func (s *sandbox) checkWhich(want ...string) {
	s.Helper()
	for _, w := range want {
		node, text, _ := strings.Cut(w, "=")
		if got := s.runOn(node, "cat /etc/which"); got != text {
			s.Errorf("%s runs %q, want %q", node, got, text)
		}
	}
}

// checkNothingLeft checks that no run has left units, timers, roots or intents on the nodes or in
// the state folder, and that each node runs the system of its profile and of its boot loader.
func (s *sandbox) checkNothingLeft(nodes ...string) {
	s.Helper()
	for _, node := range nodes {
		if got := s.runOn(node, "systemctl list-units --all --plain --no-legend 'nixbench-activate*'; systemctl list-timers --all --no-legend 'nixbench*'; ls /nix/var/nix/gcroots/nixbench | grep -v previous"+
			" || :; grep '^phase=' /var/lib/nixbench/activate/state | grep -v done || :"); got != "" {
			s.Errorf("%s: left behind: %s", node, got)
		}
		if got := s.runOn(node, "readlink -f /run/current-system /nix/var/nix/profiles/system; cat /boot/nixbench-default"); len(slices.Compact(strings.Fields(got))) != 1 {
			s.Errorf("%s: the running system, the profile and the boot default differ:\n%s", node, got)
		}
	}
	if got := s.readState().Intents; len(got) != 0 {
		s.Errorf("intents: %+v", got)
	}
}

// recorded is the part of state.json that tests read.
type recorded struct {
	Intents []struct{ Run, Node, Step string }
	Nodes   map[string]struct{ Good, Before *recordedSystem }
}

type recordedSystem struct {
	Path       string
	Generation int
	Run        string
}

func (s *sandbox) readState() recorded {
	s.Helper()
	text, err := os.ReadFile(s.stateFile("state.json"))
	if err != nil {
		s.Fatal(err)
	}
	var r recorded
	if err := json.Unmarshal(text, &r); err != nil {
		s.Fatal(err)
	}
	return r
}

func (s *sandbox) stateFile(name string) string {
	return filepath.Join(s.dir, ".nixbench", "hive", name)
}

// runEvent is a line of events.jsonl.
type runEvent struct {
	Time        time.Time
	Event       string
	Phase, Node string
	Text        string
	Done, Total int
	Failed      bool
}

func (h runEvent) String() string { return h.Event + " " + h.Phase + " " + h.Node + " " + h.Text }

// eventFiles returns the paths of all runs' events.jsonl.
func (s *sandbox) eventFiles() []string {
	files, _ := filepath.Glob(s.stateFile("runs/*/events.jsonl"))
	return files
}

// events returns the events of the run that was started last. It is the one whose file is new:
// the names of runs that began in the same second are not in the order of their starts.
func (s *sandbox) events() []runEvent {
	s.Helper()
	files := slices.DeleteFunc(s.eventFiles(), func(file string) bool { return slices.Contains(s.before, file) })
	if len(files) == 0 {
		return nil
	}
	file := slices.Max(files)
	text, err := os.ReadFile(file)
	if err != nil {
		s.Fatal(err)
	}
	var out []runEvent
	for line := range bytes.Lines(text) {
		var h runEvent
		if json.Unmarshal(line, &h) == nil { // the last line may be incomplete
			out = append(out, h)
		}
	}
	return out
}

// findEvents returns the events of the last run for which f is true.
func (s *sandbox) findEvents(f func(runEvent) bool) []runEvent {
	return slices.DeleteFunc(s.events(), func(h runEvent) bool { return !f(h) })
}

// startedPhases returns the phases that the last run started on a node.
func (s *sandbox) startedPhases(node string) string {
	var out []string
	for _, h := range s.findEvents(func(h runEvent) bool { return h.Event == "node-start" && h.Node == node }) {
		out = append(out, h.Phase)
	}
	return strings.Join(out, " ")
}

// waitFor polls until ok returns true.
func (s *sandbox) waitFor(limit time.Duration, what string, ok func() bool) {
	s.Helper()
	for begin := time.Now(); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Since(begin) > limit {
			s.Fatalf("waited %v for %s", limit, what)
		}
	}
}

// countLogins counts the logins in the journal of a node's sshd, including the login of countLogins itself.
func (s *sandbox) countLogins(node string) int {
	s.Helper()
	return strings.Count(s.runOn(node, "journalctl --sync; journalctl -q -t sshd -t sshd-session -o cat | grep 'Accepted publickey' || :"), "Accepted publickey")
}

func (s *sandbox) readFile(name string) string {
	s.Helper()
	text, err := os.ReadFile(filepath.Join(s.dir, name))
	if err != nil {
		s.Fatal(err)
	}
	return string(text)
}
