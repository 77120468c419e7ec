package program

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidwall/gjson"

	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/bench/player/null"
	"github.com/nixbench/nixbench/bench/player/playertest"
	"github.com/nixbench/nixbench/bench/workload"
)

// TestMain runs the tests, or is the program that they run.
func TestMain(m *testing.M) {
	if os.Getenv("NIXBENCH_TEST_PLAY") == "" {
		os.Exit(m.Run())
	}
	if err := playNull(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// playNull submits the jobs in the file to the ideal scheduler.
func playNull() error {
	file, err := os.Open(os.Getenv("NIXBENCH_JOBS"))
	if err != nil {
		return err
	}
	jobs, err := workload.Read(file)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(os.Stdout)
	print := func(v any) {
		data, _ := json.Marshal(v)
		_, _ = out.Write(append(data, '\n'))
		_ = out.Flush()
	}
	begin := func() time.Time {
		print(map[string]string{"event": "begin"})
		answer, _ := bufio.NewReader(os.Stdin).ReadBytes('\n')
		return time.UnixMicro(gjson.GetBytes(answer, "time").Int())
	}
	return newNull().Play(context.Background(), jobs, begin, func(e player.Event) {
		print(line{Event: e.Kind, ID: e.Job, Task: e.Task, Time: e.Time.UnixMicro(), Node: e.Node, Text: e.Text})
	})
}

func newNull() player.Player { return null.New(0) }

func TestContract(t *testing.T) {
	playertest.Run(t, func(t *testing.T) player.Player {
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		return New(newNull(), Options{Name: "play", Argv: []string{exe}, Folder: dir, Env: append(os.Environ(), "NIXBENCH_TEST_PLAY=1"), Log: filepath.Join(dir, "log")})
	})
}

// newScript returns a player that runs a script. $T is the time in microseconds.
func newScript(t *testing.T, script string) *Player {
	t.Helper()
	dir := t.TempDir()
	return New(newNull(), Options{Name: "play.sh", Argv: []string{"/bin/bash", "-c", "T=${EPOCHREALTIME/./}\n" + script, "play.sh", "argument"}, Folder: dir,
		Env: append(os.Environ(), "NIXBENCH_CELL=workload=own"), Log: filepath.Join(dir, "log")})
}

const begin = `echo '{"event": "begin"}'; read -r answer` + "\n"

// event returns the command that prints an event with the current time.
func event(kind, id string) string {
	return `echo '{"event": "` + kind + `", "id": "` + id + `", "time": '${EPOCHREALTIME/./}'}'` + "\n"
}

// play runs a script with jobs, or none.
func play(t *testing.T, p *Player, jobs ...workload.Job) ([]player.Event, error) {
	t.Helper()
	if len(jobs) > 0 {
		var err error
		if jobs, err = workload.Prepare(jobs); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	events, _, err := playertest.Play(ctx, p, jobs)
	return events, err
}

// The program has its arguments, its environment and its folder, and its messages are in the log. Without jobs, it decides them.
func TestOwnJobs(t *testing.T) {
	p := newScript(t, begin+event("submit", "a")+event("finish", "a")+`echo '{"event": "failed", "id": "B_2", "time": '$T', "text": "no"}'
		cat; echo "$1 $NIXBENCH_CELL $PWD" >&2`)
	events, err := play(t, p)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range events {
		got = append(got, strings.TrimSpace(e.Kind+" "+e.Job+" "+e.Text))
	}
	want := map[string]bool{"submit a": true, "finish a": true, "failed B_2 no": true}
	for _, g := range got {
		if !want[g] {
			t.Errorf("unexpected event %q", g)
		}
	}
	if len(got) != 3 {
		t.Errorf("%q", got)
	}
	data, err := os.ReadFile(p.o.Log)
	if diff := cmp.Diff("argument workload=own "+p.o.Folder+"\n", string(data)); diff != "" || err != nil {
		t.Errorf("%v, %s", err, diff)
	}
}

// Each mistake of a program is an error that names the program and the line, or its last message.
func TestMistakes(t *testing.T) {
	for script, want := range map[string]string{
		`exit 0`:                              `play.sh: it has ended without {"event": "begin"}; its messages are in `,
		`echo first >&2; echo no >&2; exit 3`: "play.sh: exit status 3: no; its messages are in ",
		`kill -9 $$`:                          "play.sh: signal: killed; its messages are in ",
		event("submit", "a"):                  `play.sh: line 1 of its output, {"event": "submit", "id": "a", "time": `,
		begin + `echo; echo hello`:            "play.sh: line 3 of its output, hello: invalid character",
		begin + `echo '{"event": "submit", "job": "a"}'; sleep 60`: `unknown field "job"`,
		begin + `echo '{} {}'`:                                                  "there is more after the JSON object",
		begin + begin:                                                           "line 2 of its output, {\"event\": \"begin\"}: begin is the first event",
		begin + event("bind", "a"):                                              `there is no event "bind"`,
		begin + `echo '{"event": "submit"}'`:                                    "the event has no id",
		begin + event("submit", "c"):                                            `the workload has no job "c"`,
		begin + event("submit", "a") + event("submit", "a"):                     "line 3 of its output, ",
		begin + `echo '{"event": "submit", "id": "a", "time": 1700000000}'`:     "the time 1700000000 is not between the beginning (",
		begin + `echo '{"event": "start", "id": "a", "task": 2, "time": '$T'}'`: "job a has no task 2",
		begin + event("finish", "a"):                                            "it has ended, and 1 of 2 jobs have no event finish or failed, such as b; its messages are in ",
		begin + `head -c 2000000 /dev/zero | tr '\0' x`:                         "token too long",
	} {
		if _, err := play(t, newScript(t, script), workload.Job{ID: "a"}, workload.Job{ID: "b"}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", script, err, want)
		}
	}
	if _, err := play(t, newScript(t, begin)); err == nil || !strings.Contains(err.Error(), "without an event of a job") {
		t.Errorf("no event: %v", err)
	}
	p := newScript(t, "")
	p.o.Argv = []string{"/no/such/program"}
	if _, err := play(t, p); err == nil || !strings.Contains(err.Error(), "play.sh: fork/exec /no/such/program: no such file or directory") {
		t.Errorf("no program: %v", err)
	}
}

// A job whose tasks have all ended has ended.
func TestTasks(t *testing.T) {
	task := func(n string) string {
		return `echo '{"event": "finish", "id": "a", "task": ` + n + `, "time": '$T'}'` + "\n"
	}
	if _, err := play(t, newScript(t, begin+task("1")+task("2")), workload.Job{ID: "a", Nodes: 2}); err != nil {
		t.Error(err)
	}
	if _, err := play(t, newScript(t, begin+task("1")), workload.Job{ID: "a", Nodes: 2}); err == nil {
		t.Error("a job with a task that has not ended is complete")
	}
}

// When the time is over, all processes of the program end, also those that ignore SIGTERM. The events until then are kept.
func TestStop(t *testing.T) {
	p := newScript(t, begin+event("submit", "a")+`bash -c 'trap "" TERM; echo $$ > child; while :; do sleep 0.1; done' & wait`)
	cause := errors.New("the time is over")
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, cause)
	defer cancel()
	events, _, err := playertest.Play(ctx, p, nil)
	if !errors.Is(err, cause) || len(events) != 1 {
		t.Errorf("%+v, %v", events, err)
	}
	checkGone(t, p)
}

// A process that the program leaves behind is ended, and does not delay the end.
func TestLeftBehind(t *testing.T) {
	p := newScript(t, begin+event("finish", "a")+`sleep 300 & echo $! > child`)
	if _, err := play(t, p, workload.Job{ID: "a"}); err != nil {
		t.Error(err)
	}
	checkGone(t, p)
}

// checkGone checks that the process whose id is in the file child has ended.
func checkGone(t *testing.T, p *Player) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(p.o.Folder, "child"))
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Sscan(string(data), &pid); err != nil {
		t.Fatal(err)
	}
	for range 50 {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil || strings.Contains(string(status), "State:\tZ") {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
	t.Errorf("process %d of the program still runs", pid)
}

// Any lines of a program are errors, or events within the limits of the workload.
func FuzzEvents(f *testing.F) {
	f.Add([]byte(`{"event":"submit","id":"a","time":1000000}`+"\n"+`{"event":"finish","id":"a","task":1,"time":1000001}`), true)
	f.Add([]byte(`{"event":"begin","time":-9223372036854775808}`+"\n"+`{"id":7}`), false)
	f.Add([]byte(strings.Repeat("[", 1000)), false)
	f.Fuzz(func(t *testing.T, text []byte, known bool) {
		var jobs []workload.Job
		if known {
			jobs = []workload.Job{{ID: "a", Tasks: 2}}
		}
		start := time.UnixMicro(1_000_000)
		c := newCheck(jobs, start)
		for one := range bytes.Lines(text) {
			l, err := parseLine(one)
			if err != nil {
				continue
			}
			e, err := c.event(l, start.Add(time.Minute))
			if err != nil {
				continue
			}
			if e.Job == "" || known && (e.Job != "a" || e.Task > 2) || e.Task < 0 || e.Time.Before(start.Add(-clockError)) {
				t.Errorf("%+v", e)
			}
			if _, err := json.Marshal(e); err != nil {
				t.Error(err)
			}
		}
		_ = c.complete()
	})
}
