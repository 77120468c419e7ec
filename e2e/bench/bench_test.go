package bench

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/nixbench/nixbench/e2e/fixture"
	"github.com/nixbench/nixbench/e2e/guests"
)

// Made once for all tests.
var (
	program string // nixbench
	nixpkgs string // the fixture
)

func TestMain(m *testing.M) { os.Exit(fixture.Main(m, &program, &nixpkgs)) }

// cluster is a hive with a SLURM cluster and benchmarks.
type cluster struct{ *guests.Cluster }

func newCluster(t *testing.T) *cluster {
	return &cluster{guests.New(t, program, 10*time.Minute, "--slurm")}
}

// writeHive writes hive.nix with benchmarks, in Nix, and settings of all nodes.
func (c *cluster) writeHive(benchmarks, settings string) {
	c.Helper()
	machine := fmt.Sprintf(`image = "%s"; init = "/usr/sbin/lab-init"; vcpus = 2; memory = "1G";`, c.Image)
	c.WriteHiveFile(fmt.Sprintf(`{
  meta.nixpkgs = import %[1]s { system = "x86_64-linux"; };
  meta.name = "bench";
  cluster.hypervisors.default = { uri = "%[2]s"; poolPath = "%[3]s"; };
  defaults = { config, pkgs, ... }: {
    system.stateVersion = "25.05";
    services.openssh.enable = true;
    boot.isContainer = true;
    %[5]s
  };
  roles.controller = { %[4]s modules = [ %[6]s/controller.nix ]; };
  roles.compute = { count = 1; %[4]s modules = [ %[6]s/compute.nix ]; };
  benchmarks = %[7]s;
}
`, nixpkgs, c.Lab.URIs["lxc"], c.Lab.PoolPath, machine, settings, c.Path("../../modules/slurm"), benchmarks))
}

// show returns the JSON of a sweep.
func (c *cluster) show(args ...string) gjson.Result {
	c.Helper()
	out := c.Run(append([]string{"bench", "show", "--json"}, args...)...)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	return gjson.Parse(lines[len(lines)-1]).Get("result")
}

// playProgram submits jobs of its own to the cluster of the trial.
const playProgram = `#!/bin/bash
event() { echo "{\"event\": \"$1\", \"id\": \"own-$2\", \"time\": ${EPOCHREALTIME/./}}"; }
nixbench exec --on controller-1 -- sinfo >&2 || exit
echo '{"event": "begin"}'
read -r _
for ((i = 1; i <= $1; i++)); do event submit $i; done
nixbench exec --on controller-1 -- runuser -u nobody -- srun --chdir=/ hostname >&2 || exit
for ((i = 1; i <= $1; i++)); do event start $i; event finish $i; done
`

// A sweep over two sizes, one of which has other modules, is killed in its first trial, and continues, on the systems that were built before that
// trial: an edit of the hive does not reach it. Its archive has no secrets, and a repetition from it, elsewhere, has the same systems and trials.
// Another sweep removes its machines. A program plays one of the workloads.
func TestSweep(t *testing.T) {
	c := newCluster(t)
	const benchmarks = `{
    small = { lib, ... }: {
      matrix = {
        "roles.compute.count" = [ 1 2 ];
        workload = [ "burst" "own" ];
        text = { none = [ ]; some.roles.compute = [ { environment.etc.text.text = "x"; } ]; };
      };
      exclude = cell: (cell.text == "some") != (cell."roles.compute.count" == 2) || cell.workload == "own" && cell.text == "some";
      workloads.burst = { jobs = lib.jobs.null { jobs = 20; }; timeLimit = "3m"; };
      workloads.own = { program = [ ./play.sh "20" ]; timeLimit = "3m"; };
      repetitions = 1;
      pause = 1;
      quiet = { steal = 1; foreignCpu = 1; psiCpu = 1; canary = 1000; swapPages = 1000000; kernelMessages = 1000; clock = 10; };
      claims.finishes = { metric = "throughput"; op = ">"; value = 0.001; where.workload = "burst"; };
    };
  }`
	c.writeHive(benchmarks, "")
	if err := os.WriteFile(filepath.Join(c.Dir, "play.sh"), []byte(playProgram), 0o755); err != nil {
		t.Fatal(err)
	}
	if out := c.Run("bench", "plan"); !strings.Contains(out, "3 cells in 2 configurations, 1 block, 3 trials") {
		t.Error("bench plan does not describe the sweep")
	}
	c.check()
	c.killInTrial(1)
	frozen := c.show().Get("sweep.configurations")
	if c.listMachines() == "" {
		t.Error("the sweep that was killed has no machines")
	}
	c.checkRoots(frozen)
	// The other sweep ends before its first trial, because it cannot be frozen, and after it has removed the machines.
	c.refuse(`removing the machines of the sweep \d{8}T\d{6}Z-small(?s:.*)the addresses in a network of mode existing are known only when machines run`,
		"bench", "run", "--unpinned", "--vary", "cluster.network.mode=existing", "--workload", "null")
	if machines := c.listMachines(); machines != "" {
		t.Errorf("another sweep leaves %s", machines)
	}

	c.killInTrial(2)
	if c.Run("bench", "destroy"); c.listMachines() != "" {
		t.Errorf("bench destroy leaves %s", c.listMachines())
	}
	c.writeHive(benchmarks, `environment.etc.edited.text = "x";`)
	if out := c.Run("bench", "run", "--unpinned"); !strings.Contains(out, "continuing the sweep") || !strings.Contains(out, "3 of 3 trials") {
		t.Error("bench run has not continued the sweep")
	}
	s := c.show()
	if s.Get("sweep.configurations").Raw != frozen.Raw {
		t.Error("the sweep has changed")
	}
	if n := s.Get("sweep.nixpkgs"); n.Get("path").String() != nixpkgs || !strings.HasPrefix(n.Get("narHash").String(), "sha256-") || !n.Get("unpinned").Bool() {
		t.Errorf("the sweep has recorded the nixpkgs %s", n)
	}
	some, none := frozen.Get(`#(levels.text=="some").systems`), frozen.Get(`#(levels.text=="none").systems`)
	if some.Get("compute-1.path").String() == none.Get("compute-1.path").String() || some.Get("controller-1.path").String() == "" {
		t.Errorf("the modules of a level are in no system: %s", frozen)
	}
	c.checkAttempts(s, 3, 20)
	if machines := c.listMachines(); machines != "" {
		t.Errorf("the machines of the sweep remain: %s", machines)
	}
	c.Run("bench", "show", "--html", "-o", "page.html")
	if _, csv, _ := c.Try("bench", "export", "--format", "csv"); strings.Count(csv, ",throughput,") != 3 {
		t.Errorf("the CSV has not one throughput per trial:\n%s", csv)
	}

	c.Run("bench", "export", "--format", "archive", "-o", "sweep.tar.gz")
	list, err := exec.Command("tar", "-tzf", filepath.Join(c.Dir, "sweep.tar.gz")).Output()
	if err != nil || !strings.Contains(string(list), "/source/hive.nix\n") || !strings.Contains(string(list), "/events.jsonl\n") {
		t.Errorf("the archive has:\n%s\n%v", list, err)
	}
	for _, secret := range []string{".nixbench", "secrets", "known_hosts", "id_ed25519"} {
		if strings.Contains(string(list), secret) {
			t.Errorf("the archive has %s", secret)
		}
	}
	out := c.Run("bench", "replay", "sweep.tar.gz")
	m := regexp.MustCompile(`(\d+) of (\d+) store paths identical`).FindStringSubmatch(out)
	if m == nil || m[1] != m[2] || m[1] == "0" {
		t.Errorf("the repetition reports %v", m)
	}
	c.checkAttempts(c.show(filepath.Join(c.Dir, "sweep-replay")), 3, 20)
	if out := c.Run("bench", "compare", "last", "./sweep-replay"); !strings.Contains(out, "the sweeps are equal") {
		t.Error("compare finds a difference between a sweep and its repetition")
	}
}

// check tries a benchmark of the command line. Its trial has a result, which other programs of this computer may disturb, and nothing remains.
func (c *cluster) check() {
	c.Helper()
	code, stdout, stderr := c.Try("bench", "check", "--json", "--vary", "roles.compute.count=1", "--workload", "null")
	var checked gjson.Result // an error follows if the trial was disturbed
	for line := range strings.Lines(stdout) {
		if r := gjson.Get(line, "result"); r.Exists() {
			checked = r
		}
	}
	cell := checked.Get("cells.0")
	if code != 0 && code != 9 || checked.Get("cells.#").Int() != 1 || cell.Get("state").String() == "failed" || cell.Get("seconds").Float() <= 0 || checked.Get("duration.seconds").Float() <= 0 {
		c.Errorf("bench check ends with %d: %s\n%s", code, stdout, stderr)
	}
	if sweeps := c.Run("bench", "list"); !strings.Contains(sweeps, "there are no sweeps yet") || c.listMachines() != "" {
		c.Errorf("bench check leaves the machines %q, and these sweeps: %s", c.listMachines(), sweeps)
	}
}

// checkRoots checks that links in the sweep's folder keep the systems and the derivations of configurations in the store.
func (c *cluster) checkRoots(configurations gjson.Result) {
	c.Helper()
	paths := append(configurations.Get("#.systems.@values.#.path|@flatten").Array(), configurations.Get("#.systems.@values.#.drv|@flatten").Array()...)
	if len(paths) < 4 {
		c.Errorf("the configurations have the systems %s", configurations.Get("#.systems"))
	}
	for _, p := range paths {
		links, _ := filepath.Glob(filepath.Join(c.Dir, ".nixbench", "bench", "benchmarks", "*", "gcroots", filepath.Base(p.String())))
		if len(links) != 1 {
			c.Errorf("%d links keep %s in the store", len(links), p)
		} else if target, err := os.Readlink(links[0]); err != nil || target != p.String() {
			c.Errorf("%s points to %s, %v", links[0], target, err)
		}
	}
}

// refuse runs nixbench, which must end with the exit code of a usage error and a message.
func (c *cluster) refuse(message string, args ...string) {
	c.Helper()
	code, stdout, stderr := c.Try(args...)
	if code != 2 || !regexp.MustCompile(message).MatchString(stdout+stderr) {
		c.Errorf("nixbench %s ends with %d, want 2 and %q:\n%s%s", strings.Join(args, " "), code, message, stdout, stderr)
	}
}

// killInTrial starts or continues a sweep, and kills nixbench when the jobs of the given attempt of the first trial run.
func (c *cluster) killInTrial(attempt int) {
	c.Helper()
	cmd := c.Command(c.Context(), "bench", "run", "--unpinned")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		c.Fatal(err)
	}
	c.waitForCluster(attempt)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	c.Logf("nixbench bench run, killed:\n%s", out.String())
	if done := c.show().Get("progress.done").Int(); done != 0 {
		c.Errorf("%d trials were done before the kill", done)
	}
}

// waitForCluster waits until an attempt of the first trial has deployed its cluster.
func (c *cluster) waitForCluster(attempt int) {
	c.Helper()
	for end := time.Now().Add(4 * time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		logs, _ := filepath.Glob(filepath.Join(c.Dir, ".nixbench", "bench", "benchmarks", "*", "trials", "1", fmt.Sprint(attempt), "apply.log"))
		for _, log := range logs {
			if text, err := os.ReadFile(log); err == nil && strings.Contains(string(text), "without failed units") {
				return
			}
		}
	}
	c.Fatal("the first trial has not deployed its cluster in four minutes")
}

// late matches the reasons of a trial on containers, and of one whose jobs were submitted late, or whose pods were observed late, as happens
// on a computer with other work: an API server ends the watch of a client that does not read fast enough.
var late = regexp.MustCompile(`^the machines are containers |^jobs were submitted up to|: the watch received a pod |: the API server ended the watch of the pods `)

// checkAttempts checks that a sweep has this number of trials, each with a valid result in which all jobs have finished.
func (c *cluster) checkAttempts(s gjson.Result, trials, jobs int64) {
	c.Helper()
	if got := s.Get("progress.done").Int(); got != trials || int64(len(s.Get("attempts").Array())) != trials {
		c.Fatalf("%d of %d trials are done: %s", got, trials, s.Get("attempts"))
	}
	for _, a := range s.Get("attempts").Array() {
		reasons := a.Get("reasons").Array()
		valid := a.Get("state").String() == "valid" ||
			a.Get("state").String() == "suspect" && !slices.ContainsFunc(reasons, func(r gjson.Result) bool { return !late.MatchString(r.String()) })
		if a.Get("result.finished").Int() != jobs || a.Get("result.metrics.throughput").Float() <= 0 || !valid || !a.Get("usage").IsObject() ||
			a.Get("clock.error").Float() <= 0 && s.Get("sweep.trials.#(number=="+a.Get("trial").Raw+").cell.workload").String() != "own" {
			c.Errorf("trial %s: %s", a.Get("trial"), a)
		}
		c.Logf("trial %s: %.3g jobs/s, p50 %.3g s, %s", a.Get("trial"), a.Get("result.metrics.throughput").Float(), a.Get("result.metrics.schedule_p50").Float(), a.Get("phases"))
	}
}

// The same workload on the same machines with two schedulers, submitted on a client of the cluster.
func TestSchedulers(t *testing.T) {
	c := &cluster{guests.New(t, program, 15*time.Minute, "--kubernetes", "--slurm", "--size", "6G")}
	c.WriteHiveFile(fmt.Sprintf(`let hive = import %[1]s { nixpkgs = %[2]s; uri = %[3]q; poolPath = %[4]q; image = %[5]q; }; in
hive // {
  roles = hive.roles // {
    client = removeAttrs hive.roles.node [ "tags" ] // {
      count = 1;
      schedulers.kubernetes.modules = [ %[6]s/kubernetes/client.nix ];
      schedulers.slurm.modules = [ %[6]s/slurm/login.nix ];
    };
  };
  benchmarks.both = { lib, ... }: {
    client = "client";
    matrix = { scheduler = [ "kubernetes" "slurm" ]; "roles.node.count" = [ 1 ]; workload = [ "burst" ]; limits = [ "tuned" ]; };
    workloads.burst = {
      jobs = lib.jobs.null { jobs = 10; } ++ [ { id = "gang"; tasks = 2; runtime = 0.5; } { id = "last"; after = [ "gang" "j1" ]; } ];
      timeLimit = "5m";
      kubernetes = { image = "localhost/probe:1"; command = [ "/probe" "sleep" "{runtime}" "{job}" ]; };
    };
    repetitions = 1;
    pause = 1;
    quiet = { steal = 1; foreignCpu = 1; psiCpu = 1; canary = 1000; swapPages = 1000000; kernelMessages = 1000; clock = 10; };
  };
}
`, c.Path("../schedulers/hive.nix"), nixpkgs, c.Lab.URIs["lxc"], c.Lab.PoolPath, c.Image, c.Path("../../modules")))
	out := c.Run("bench", "run", "--unpinned")
	s := c.show()
	c.checkAttempts(s, 2, 12)
	if !strings.Contains(out, ": kubernetes: ") || !strings.Contains(out, ": slurm: ") {
		t.Error("the result does not name both schedulers")
	}
	var epilogs []string
	for _, a := range s.Get("attempts").Array() {
		if wait, start := a.Get("result.metrics.wait_p50"), a.Get("result.metrics.start_p50"); wait.Float() <= 0 || start.Float() <= 0 || a.Get("result.unstamped").Exists() {
			t.Errorf("trial %s: wait %s, start %s, %s jobs without stamps", a.Get("trial"), wait, start, a.Get("result.unstamped"))
		}
		if len(a.Get("limits").Array()) == 0 || len(a.Get("usage").Map()) == 0 {
			t.Errorf("trial %s has no limits or no usage: %s", a.Get("trial"), a)
		}
		// slurmctld has read the settings for benchmarks.
		if epilog := a.Get(`limits.#(name=="slurmd: Epilog").value`); epilog.Exists() {
			epilogs = append(epilogs, epilog.String())
		}
		if a.Get("place.commands").String() != "client-1" || a.Get("place.scheduler").String() != "head-1" || a.Get("result.metrics.scheduler_cpu").Float() <= 0 {
			t.Errorf("trial %s: the commands ran on %s", a.Get("trial"), a.Get("place"))
		}
	}
	if !slices.Equal(epilogs, []string{"/run/current-system/sw/bin/true"}) {
		t.Errorf("the epilogs of the trial with SLURM are %q", epilogs)
	}
	if out := c.Run("bench", "show", "--trials"); !strings.Contains(out, "ran on client-1, and the scheduler on head-1.") {
		t.Error("bench show does not say where the commands ran")
	}
	// Each job is submitted once. kube-scheduler binds each task with a request of its own, and so the jobs of SLURM.
	for _, want := range []struct {
		verb, resource string
		atLeast        int64
	}{{"POST", "jobs.batch", 12}, {"POST", "pods/binding", 13}, {"REQUEST_SUBMIT_BATCH_JOB", "", 12}, {"REQUEST_COMPLETE_BATCH_SCRIPT", "", 12}} {
		got := int64(0)
		for _, r := range s.Get("attempts.#.requests|@flatten").Array() {
			if r.Get("verb").String() == want.verb && r.Get("resource").String() == want.resource {
				got += r.Get("count").Int()
			}
		}
		if got < want.atLeast || got > 2*want.atLeast {
			t.Errorf("%d requests %s %s", got, want.verb, want.resource)
		}
	}
}

// listMachines returns the names of all containers.
func (c *cluster) listMachines() string {
	c.Helper()
	out, err := c.Lab.Command(c.Context(), "virsh", "-q", "-c", c.Lab.URIs["lxc"], "list", "--all", "--name").Output()
	if err != nil {
		c.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}
