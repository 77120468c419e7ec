package flux

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/e2e/fixture"
	"github.com/nixbench/nixbench/nixeval"
)

// ahead is what the clock of the fake leader is ahead.
const ahead = 5 * time.Second

// fakeCluster is a leader on which the player's scripts and its program run with the stand-ins in testdata.
type fakeCluster struct {
	t      testing.TB
	folder string // instead of [folder]
	env    []string
	mu     sync.Mutex
	count  map[string]int                         // calls, by program
	answer map[string]func(n int) (string, error) // by program: an answer instead of the usual one, if it is not empty
	drift  time.Duration                          // what the clock is ahead at the end, in addition
}

func newFake(t testing.TB) *fakeCluster {
	t.Helper()
	fixture.Require(t, "python3")
	state := t.TempDir()
	if err := os.Mkdir(filepath.Join(state, "jobs"), 0o755); err != nil {
		t.Fatal(err)
	}
	data, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	f := &fakeCluster{t: t, folder: filepath.Join(state, "run"), count: map[string]int{}, answer: map[string]func(int) (string, error){}}
	f.env = append(os.Environ(), "PATH="+data+"/bin:"+os.Getenv("PATH"), "PYTHONPATH="+data+"/python", "PYTHONDONTWRITEBYTECODE=1",
		"STATE="+state, fmt.Sprintf("AHEAD=%f", ahead.Seconds()), "STATUS=0")
	t.Cleanup(func() {
		cmd := exec.Command("systemctl", "stop", unit.Name)
		cmd.Path, cmd.Env = filepath.Join(data, "bin", "systemctl"), f.env
		_ = cmd.Run() // fails if there is no program
	})
	return f
}

func (f *fakeCluster) player() *Player {
	member := func(node, role string) engine.Member {
		return engine.Member{Node: node, Engine: nixeval.Engine{Kind: "flux", Role: role}}
	}
	p := New(engine.Cluster{Name: "bench", Run: f.run, Members: []engine.Member{
		member("leader-1", "leader"), member("compute-1", "compute"), member("compute-2", "compute"),
	}}).(*Player)
	p.program.Poll, p.program.Quiet = 20*time.Millisecond, 100*time.Millisecond
	return p
}

func (f *fakeCluster) run(ctx context.Context, node string, stdin io.Reader, argv ...string) ([]byte, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	f.mu.Lock()
	f.count[argv[0]]++
	n := f.count[argv[0]]
	f.mu.Unlock()
	if a := f.answer[argv[0]]; a != nil {
		if out, err := a(n); out != "" || err != nil {
			return []byte(out), err
		}
	}
	if len(argv) > 2 && argv[0] == "sh" && argv[2] == "--" {
		return []byte(usage()), nil
	}
	switch text := strings.Join(argv, " "); {
	case argv[0] == "date" && node != "leader-1":
		return []byte(epoch(time.Now())), nil
	case strings.Contains(text, "-stamps") && node != "compute-1": // where the jobs run
		return nil, nil
	case strings.Contains(text, "-stamps"):
	case node != "leader-1":
		return nil, fmt.Errorf("%s: %s: command not found", node, argv[0])
	}
	if argv[0] == "date" {
		now := time.Now().Add(ahead)
		f.mu.Lock()
		f.count["date of leader"]++
		n = f.count["date of leader"]
		f.mu.Unlock()
		if n > 5 {
			now = now.Add(f.drift)
		}
		return []byte(epoch(now) + "\n"), nil
	}
	var input []byte
	if stdin != nil {
		var err error
		if input, err = io.ReadAll(stdin); err != nil {
			return nil, err
		}
	}
	argv = slices.Clone(argv)
	for i := range argv {
		argv[i] = f.replace(argv[i])
	}
	if argv[0] == "systemctl" {
		argv = append([]string{"env"}, argv...) // finds the stand-in
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdin, cmd.Env = strings.NewReader(f.replace(string(input))), f.env
	var diag strings.Builder
	cmd.Stderr = &diag
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", argv[0], err, strings.TrimSpace(diag.String()))
	}
	return out, err
}

// replace replaces the paths of the player by paths in the folder of the test.
func (f *fakeCluster) replace(text string) string {
	return strings.NewReplacer(folder, f.folder, "/run/nixbench-bench-stamps", f.folder+"-stamps").Replace(text)
}

// usage answers to the script of [player.ReadUsage].
func usage() string {
	return "flux-broker-*|1500000|1048576\n"
}

// epoch returns a time as the command date prints it.
func epoch(t time.Time) string { return fmt.Sprintf("%d.%09d", t.Unix(), t.Nanosecond()) }
