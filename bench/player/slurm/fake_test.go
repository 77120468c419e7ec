package slurm

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/nixeval"
)

// fakeSbatch writes its arguments to a file with the id of the job as its name, as sbatch --parsable prints the id.
const fakeSbatch = `#!/bin/sh
for i; do
	case $i in
	--partition=missing)
		echo "sbatch: error: invalid partition specified: missing" >&2
		echo "sbatch: error: Batch job submission failed: Invalid partition name specified" >&2
		exit 1 ;;
	esac
done
sleep "$DELAY"
read -r n < "$SPOOL/next"
echo $((n + 1)) > "$SPOOL/next"
printf '%s\n' "$@" > "$SPOOL/$n.job"
echo "sbatch: a message of a plugin" >&2
echo "$n;bench"
`

// fakeConfig is what scontrol show config prints, abbreviated.
const fakeConfig = `Configuration data as of 2025-11-23T15:00:00
MaxArraySize            = 1001
MaxJobCount             = 10000
SchedulerParameters     = (null)
SchedulerType           = sched/backfill
SlurmctldDebug          = info
SlurmctldLogFile        = (null)

Slurmctld(primary) at head is UP
`

// ahead is what the clock of the fake controller is ahead.
const ahead = 5 * time.Second

// computeAhead is what the clocks of the fake compute nodes are ahead.
const computeAhead = -30 * time.Second

// clientAhead is what the clock of the fake client is ahead.
const clientAhead = -time.Hour

// fakeJob is a job or a task of an array.
type fakeJob struct {
	id, logID         string
	begin, start, end time.Time
	after             []string
	runtime           time.Duration
	nodes             string
	exit              int
	cancelled         bool
	tasks             int
}

// fakeCluster is a controller whose programs print what those of SLURM print. Its nodes have room for all jobs.
type fakeCluster struct {
	t      testing.TB
	mu     sync.Mutex
	spool  string
	jobs   []*fakeJob
	taken  int // the next id whose file is read
	log    []entry
	calls  []string
	answer map[string]func(n int) (string, error) // by program: an answer instead of the usual one, if it is not empty
	count  map[string]int
	drift  time.Duration // what the clock is ahead at the end, in addition
	delay  time.Duration // how long sbatch takes
	drops  string        // a text: messages that contain it are lost
	config string
	exit   int           // exit status of the jobs
	client string        // the node on which sbatch runs; empty: head
	launch time.Duration // from the placement of a job to its first instruction
	stamps []entry       // on compute-1
	loses  int           // number of stamps that are lost
}

type entry struct {
	at      time.Time
	message string
}

func newFake(t testing.TB) *fakeCluster {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "sbatch"), []byte(fakeSbatch), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "next"), []byte("3\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return &fakeCluster{t: t, spool: dir, taken: 3, answer: map[string]func(int) (string, error){}, count: map[string]int{}, config: fakeConfig}
}

func (f *fakeCluster) player() *Player {
	member := func(node, role string) engine.Member {
		return engine.Member{Node: node, Engine: nixeval.Engine{Kind: "slurm", Role: role}}
	}
	p := New(engine.Cluster{Name: "bench", Run: f.run, Members: []engine.Member{
		member("head", "controller"), member("compute-1", "compute"), member("compute-2", "compute"), member("login", "login"),
	}}, f.client, true).(*Player)
	p.poll, p.quiet = 20*time.Millisecond, 100*time.Millisecond
	return p
}

func (f *fakeCluster) run(ctx context.Context, node string, stdin io.Reader, argv ...string) ([]byte, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, node+": "+strings.Join(argv, " "))
	f.count[argv[0]]++
	if a := f.answer[argv[0]]; a != nil {
		if out, err := a(f.count[argv[0]]); out != "" || err != nil {
			return []byte(out), err
		}
	}
	if len(argv) > 2 && argv[0] == "sh" && argv[2] == "--" {
		return []byte(usage(node)), nil
	}
	now := time.Now()
	switch text := strings.Join(argv, " "); {
	case argv[0] == "date" && node == f.client:
		return []byte(epoch(now.Add(clientAhead))), nil
	case argv[0] == "date" && node != "head":
		return []byte(epoch(now.Add(computeAhead))), nil
	case strings.HasPrefix(text, "sh -c rm -f /run/nixbench-bench-stamps"):
		f.stamps = nil
		return nil, nil
	case text == "cat /run/nixbench-bench-stamps" && node == "compute-1":
		return []byte(f.listStamps(now)), nil
	case text == "cat /run/nixbench-bench-stamps":
		return nil, nil
	}
	if submits := argv[0] == "bash" || argv[0] == "scontrol" && argv[1] == "ping"; node != "head" && (node != f.client || !submits) || node == "head" && f.client != "" && submits {
		return nil, fmt.Errorf("%s: %q is not expected there", node, argv)
	}
	var out string
	switch argv[0] {
	case "date":
		if f.count["date of head"]++; f.count["date of head"] > 5 {
			now = now.Add(f.drift)
		}
		out = epoch(now.Add(ahead)) + "\n"
	case "sdiag":
		text, err := os.ReadFile("testdata/sdiag")
		return text, err
	case "scontrol":
		out = f.config
	case "bash":
		cmd := exec.CommandContext(ctx, "bash", "-s")
		cmd.Stdin = stdin
		cmd.Env = append(os.Environ(), "PATH="+f.spool+":"+os.Getenv("PATH"), "SPOOL="+f.spool, fmt.Sprintf("DELAY=%f", f.delay.Seconds()))
		printed, err := cmd.Output()
		f.take()
		if f.client != "" {
			return setAhead(printed, clientAhead), err
		}
		return setAhead(printed, ahead), err
	case "journalctl":
		out = f.journal(argv, now)
	case "squeue":
		for _, j := range f.jobs {
			if !j.cancelled && j.end.After(now) {
				out += j.id + "\n"
			}
		}
	case "scancel":
		for _, j := range f.jobs {
			j.cancelled = j.end.After(now)
		}
	default:
		return nil, fmt.Errorf("unexpected command %q", argv)
	}
	return []byte(out), nil
}

// setAhead changes the times in the output of a script to those of a clock that is ahead.
func setAhead(printed []byte, ahead time.Duration) []byte {
	var out strings.Builder
	for line := range strings.Lines(string(printed)) {
		parts := strings.SplitN(line, " ", 3)
		if at, err := player.ParseTime(parts[1]); err == nil {
			us := at.Add(ahead).UnixMicro()
			parts[1] = fmt.Sprintf("%d.%06d", us/1e6, us%1e6)
		}
		out.WriteString(strings.Join(parts, " "))
	}
	return []byte(out.String())
}

// take runs the jobs that sbatch has stored: it computes their times and writes the log, also of the future.
func (f *fakeCluster) take() {
	for ; ; f.taken++ {
		text, err := os.ReadFile(filepath.Join(f.spool, strconv.Itoa(f.taken)+".job"))
		if err != nil {
			return
		}
		options := map[string]string{}
		for line := range strings.Lines(string(text)) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			options[name] = value
		}
		id := strconv.Itoa(f.taken)
		now := time.Now()
		f.add(now, "_slurm_rpc_submit_batch_job: JobId="+id+" InitPrio=4294901758 usec=312")
		last := 0
		if tasks, ok := strings.CutPrefix(options["--array"], "1-"); ok {
			last, _ = strconv.Atoi(tasks)
		}
		for task := min(1, last); task <= last; task++ {
			j := &fakeJob{id: id, logID: id, begin: now, exit: f.exit, nodes: "compute-1"}
			if task > 0 {
				j.id = fmt.Sprintf("%s_%d", id, task)
				j.logID = fmt.Sprintf("%s(%d)", j.id, f.taken+task)
			}
			if options["--nodes"] == "2" {
				j.nodes = "compute-[1-2]"
			}
			if m := regexp.MustCompile(`\nsleep ([0-9.]+)\n`).FindSubmatch(text); m != nil {
				seconds, _ := strconv.ParseFloat(string(m[1]), 64)
				j.runtime = time.Duration(seconds * float64(time.Second))
			}
			j.tasks, _ = strconv.Atoi(options["--ntasks"])
			if ids, ok := strings.CutPrefix(options["--dependency"], "afterany:"); ok {
				j.after = strings.Split(ids, ":")
			}
			f.simulate(j)
		}
	}
}

// simulate computes the times of a job, and adds its messages to the log.
func (f *fakeCluster) simulate(j *fakeJob) {
	j.start = j.begin.Add(2 * time.Millisecond)
	for _, a := range j.after {
		i := slices.IndexFunc(f.jobs, func(o *fakeJob) bool { return o.id == a })
		if i < 0 {
			f.t.Errorf("job %s depends on %s, which does not exist", j.id, a)
			continue
		}
		if f.jobs[i].end.After(j.start) {
			j.start = f.jobs[i].end.Add(time.Millisecond)
		}
	}
	first := j.start.Add(f.launch + 2*time.Millisecond)
	j.end = first.Add(j.runtime + 4*time.Millisecond)
	for task := range j.tasks {
		f.stamps = append(f.stamps, entry{first, fmt.Sprintf("nixbench first %s %d", j.id, task)},
			entry{j.end.Add(-2 * time.Millisecond), fmt.Sprintf("nixbench last %s %d", j.id, task)})
	}
	if len(f.jobs)%2 == 0 {
		f.add(j.start, "sched: Allocate JobId="+j.logID+" NodeList="+j.nodes+" #CPUs=1 Partition=main")
	} else {
		f.add(j.start, "sched/backfill: _start_job: Started JobId="+j.logID+" in main on "+j.nodes)
	}
	f.add(j.end, fmt.Sprintf("_job_complete: JobId=%s WEXITSTATUS %d", j.logID, j.exit))
	f.add(j.end, "_job_complete: JobId="+j.logID+" done")
	f.jobs = append(f.jobs, j)
}

func (f *fakeCluster) add(at time.Time, message string) {
	if f.drops == "" || !strings.Contains(message, f.drops) {
		f.log = append(f.log, entry{at, message})
	}
}

// listStamps returns the file with the stamps that exist already.
func (f *fakeCluster) listStamps(now time.Time) (text string) {
	for _, e := range f.stamps[min(f.loses, len(f.stamps)):] {
		if at := e.at.Add(computeAhead).UnixMicro(); !e.at.After(now) {
			text += fmt.Sprintf("%s %d.%06d\n", e.message, at/1e6, at%1e6)
		}
	}
	return text
}

// journal answers to journalctl. Its cursors are times on this machine.
func (f *fakeCluster) journal(argv []string, now time.Time) string {
	var b strings.Builder
	position := argv[len(argv)-1]
	var after int64
	if n, _ := fmt.Sscanf(position, "--after-cursor=s=%d", &after); n != 1 {
		if n, err := fmt.Sscanf(position, "--since=@%d", &after); n != 1 {
			f.t.Errorf("unexpected command %q: %v", argv, err)
		}
		after = time.Unix(after, 0).Add(-ahead).UnixNano() - 1
	}
	var due []entry
	for _, e := range f.log {
		if e.at.UnixNano() > after && !e.at.After(now) {
			due = append(due, e)
		}
	}
	slices.SortStableFunc(due, func(a, b entry) int { return a.at.Compare(b.at) })
	for _, e := range due {
		line, err := json.Marshal(map[string]any{"__CURSOR": fmt.Sprintf("s=%d", e.at.UnixNano()), "MESSAGE": e.message, "_BOOT_ID": "b",
			"__REALTIME_TIMESTAMP": strconv.FormatInt(e.at.Add(ahead).UnixMicro(), 10), "__MONOTONIC_TIMESTAMP": "1"})
		if err != nil {
			f.t.Error(err)
		}
		b.Write(append(line, '\n'))
	}
	return b.String()
}

// usage answers to the script of [player.ReadUsage].
func usage(node string) string {
	daemon := "slurmd"
	if node == "head" {
		daemon = "slurmctld"
	}
	return daemon + "|1500000|1048576\n"
}

// epoch returns a time as the command date prints it.
func epoch(t time.Time) string { return fmt.Sprintf("%d.%09d", t.Unix(), t.Nanosecond()) }
