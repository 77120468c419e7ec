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

// site is a hive with its state, and the lab that it is for.
type site struct {
	testing.TB
	l      *lab.Lab
	dir    string
	env    []string
	before []string // the runs there were when the program was last started
}

func newSite(t testing.TB, l *lab.Lab) *site {
	dir := t.TempDir()
	home := filepath.Join(dir, "home")
	hive := filepath.Join(dir, "hive")
	for _, d := range []string{home, hive} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return &site{TB: t, l: l, dir: hive, env: append(os.Environ(),
		"GORACE=atexit_sleep_ms=0", "HOME="+home, "NIX_PATH=nixpkgs="+nixpkgs, "NIX_CONFIG="+fixture.NixConfig, "SSH_AUTH_SOCK=", "NO_COLOR=1")}
}

// in is the site for a part of the test.
func (s *site) in(t testing.TB) *site {
	part := *s
	part.TB = t
	return &part
}

// head is what all hives have: a way in, and a file that a change can be seen by.
const head = `let
  # A unit that is started once.
  once = script: { wantedBy = [ "multi-user.target" ]; serviceConfig = { Type = "oneshot"; RemainAfterExit = true; ExecStart = "/bin/sh -c '${script}'"; }; };
  # What the node says of itself in /etc/which.
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

// hive writes hive.nix, whose nodes are given.
func (s *site) hive(nodes string) {
	s.Helper()
	s.write("hive.nix", fmt.Sprintf(head, s.l.SSHConfig())+nodes+"\n}\n")
}

func (s *site) write(name, text string) {
	s.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600); err != nil {
		s.Fatal(err)
	}
}

// said is what a run of the program left.
type said struct {
	out, err string
	code     int
	took     time.Duration
}

// process is a run of the program that may still go on.
type process struct {
	*exec.Cmd
	s        *site
	began    time.Time
	out, err bytes.Buffer
}

func (s *site) start(args ...string) *process {
	s.Helper()
	return s.startTo(io.Discard, io.Discard, args...)
}

// startTo is start, with the output written to these, too, while the program runs.
func (s *site) startTo(out, err io.Writer, args ...string) *process {
	s.Helper()
	s.before = s.runs()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	s.Cleanup(cancel)
	p := &process{Cmd: s.l.Command(ctx, program, args...), s: s, began: time.Now()}
	p.Dir, p.Env, p.Stdout, p.Stderr = s.dir, s.env, io.MultiWriter(&p.out, out), io.MultiWriter(&p.err, err)
	if err := p.Start(); err != nil {
		s.Fatal(err)
	}
	return p
}

// end waits for the program.
func (p *process) end() said {
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
	got := said{out: p.out.String(), err: p.err.String(), code: code, took: time.Since(p.began).Round(10 * time.Millisecond)}
	p.s.Logf("nixbench %s: exit %d after %v", strings.Join(p.Args[5:], " "), got.code, got.took)
	if strings.Contains(got.err, "DATA RACE") {
		p.s.Error(got.err)
	}
	return got
}

// run runs the program, which must end with this code.
func (s *site) run(code int, args ...string) said {
	s.Helper()
	got := s.start(args...).end()
	if got.code != code {
		s.Fatalf("nixbench %s: exit %d, want %d\n%s%s", strings.Join(args, " "), got.code, code, got.out, got.err)
	}
	return got
}

// says asserts what the program said.
func (s *site) says(got said, want ...string) {
	s.Helper()
	for _, w := range want {
		if !strings.Contains(got.out+got.err, w) {
			s.Errorf("no %q in\n%s%s", w, got.out, got.err)
		}
	}
}

func (s *site) saysNot(got said, want ...string) {
	s.Helper()
	for _, w := range want {
		if strings.Contains(got.out+got.err, w) {
			s.Errorf("%q is in\n%s%s", w, got.out, got.err)
		}
	}
}

// on runs a shell script on a node: the machine of the same name, up to the first dot.
func (s *site) on(node, script string) string {
	s.Helper()
	machine, _, _ := strings.Cut(node, ".")
	return s.l.Run(s, machine, script)
}

// is asserts what /etc/which says on each node, as `node=text`.
func (s *site) is(want ...string) {
	s.Helper()
	for _, w := range want {
		node, text, _ := strings.Cut(w, "=")
		if got := s.on(node, "cat /etc/which"); got != text {
			s.Errorf("%s runs %q, want %q", node, got, text)
		}
	}
}

// settled asserts that nothing of a run is left on nodes or here, and that each node
// would boot what it runs.
func (s *site) settled(nodes ...string) {
	s.Helper()
	for _, node := range nodes {
		if got := s.on(node, "systemctl list-units --all --plain --no-legend 'nixbench-activate*' 'nixbench-switch*'; systemctl list-timers --all --no-legend 'nixbench*'; ls /nix/var/nix/gcroots/nixbench | grep -v previous"+
			" || :; grep '^phase=' /var/lib/nixbench/activate/state | grep -v done || :"); got != "" {
			s.Errorf("%s: left behind: %s", node, got)
		}
		if got := s.on(node, "readlink -f /run/current-system /nix/var/nix/profiles/system; cat /boot/nixbench-default"); len(slices.Compact(strings.Fields(got))) != 1 {
			s.Errorf("%s: runs, has and would boot\n%s", node, got)
		}
	}
	if got := s.state().Intents; len(got) != 0 {
		s.Errorf("intents: %+v", got)
	}
}

// recorded is state.json, as far as tests look at it.
type recorded struct {
	Intents []struct{ Run, Node, Step string }
	Nodes   map[string]struct{ Good, Before *recordedSystem }
}

type recordedSystem struct {
	Path       string
	Generation int
	Run        string
}

func (s *site) state() recorded {
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

func (s *site) stateFile(name string) string {
	return filepath.Join(s.dir, ".nixbench", "hive", name)
}

// happened is an event of events.jsonl.
type happened struct {
	Time        time.Time
	Event       string
	Phase, Node string
	Text        string
	Done, Total int
	Failed      bool
}

func (h happened) String() string { return h.Event + " " + h.Phase + " " + h.Node + " " + h.Text }

// runs are the files of all runs' events.
func (s *site) runs() []string {
	files, _ := filepath.Glob(s.stateFile("runs/*/events.jsonl"))
	return files
}

// events are those of the run that was started last. Names do not tell which that is:
// two runs may begin in the same second.
func (s *site) events() []happened {
	s.Helper()
	files := slices.DeleteFunc(s.runs(), func(file string) bool { return slices.Contains(s.before, file) })
	if len(files) == 0 {
		return nil
	}
	file := slices.Max(files)
	text, err := os.ReadFile(file)
	if err != nil {
		s.Fatal(err)
	}
	var out []happened
	for line := range bytes.Lines(text) {
		var h happened
		if json.Unmarshal(line, &h) == nil { // the last line may be in the making
			out = append(out, h)
		}
	}
	return out
}

// find gives the events of the newest run for which f is true.
func (s *site) find(f func(happened) bool) []happened {
	return slices.DeleteFunc(s.events(), func(h happened) bool { return !f(h) })
}

// phases are the phases that a node went through in the newest run.
func (s *site) phases(node string) string {
	var out []string
	for _, h := range s.find(func(h happened) bool { return h.Event == "node-start" && h.Node == node }) {
		out = append(out, h.Phase)
	}
	return strings.Join(out, " ")
}

// wait polls until something is so.
func (s *site) wait(limit time.Duration, what string, ok func() bool) {
	s.Helper()
	for begin := time.Now(); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Since(begin) > limit {
			s.Fatalf("waited %v for %s", limit, what)
		}
	}
}

// logins counts the logins that a node's sshd has seen, this one included.
func (s *site) logins(node string) int {
	s.Helper()
	return strings.Count(s.on(node, "journalctl --sync; journalctl -q -t sshd -t sshd-session -o cat | grep 'Accepted publickey' || :"), "Accepted publickey")
}

func (s *site) read(name string) string {
	s.Helper()
	text, err := os.ReadFile(filepath.Join(s.dir, name))
	if err != nil {
		s.Fatal(err)
	}
	return string(text)
}
