package bench

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
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
`, nixpkgs, c.Lab.URI("lxc"), c.Lab.PoolPath(), machine, settings, c.Path("../../modules/slurm"), benchmarks))
}

// show returns the JSON of a sweep.
func (c *cluster) show(args ...string) gjson.Result {
	c.Helper()
	out := c.Run(append([]string{"bench", "show", "--json"}, args...)...)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	return gjson.Parse(lines[len(lines)-1]).Get("result")
}

// A sweep over two sizes gives a result for each trial, on the systems that were built before the first one. An interrupted sweep
// continues, and an edit of the hive does not reach it.
func TestSweep(t *testing.T) {
	c := newCluster(t)
	const benchmarks = `{
    small = { lib, ... }: {
      matrix = { "roles.compute.count" = [ 1 2 ]; workload = [ "burst" ]; };
      workloads.burst = { jobs = lib.jobs.null { jobs = 30; }; timeLimit = "2m"; };
      repetitions = 2;
      pause = 1;
      quiet = { steal = 1; foreignCpu = 1; psiCpu = 1; canary = 1; };
    };
  }`
	c.writeHive(benchmarks, "")
	if out := c.Run("bench", "plan"); !strings.Contains(out, "2 cells in 2 configurations, 2 blocks, 4 trials") {
		t.Error("bench plan does not describe the sweep")
	}
	began := time.Now()
	c.Run("bench", "run")
	t.Logf("4 trials: %.1f s", time.Since(began).Seconds())
	s := c.show()
	if got := s.Get("progress.done").Int(); got != 4 {
		t.Fatalf("%d of 4 trials are done: %s", got, s.Get("attempts"))
	}
	for _, a := range s.Get("attempts").Array() {
		if a.Get("result.finished").Int() != 30 || a.Get("result.metrics.throughput").Float() <= 0 || a.Get("result.metrics.schedule_p50").Float() <= 0 {
			t.Errorf("trial %s: %s", a.Get("trial"), a)
		}
		t.Logf("trial %s: %s jobs/s, %s", a.Get("trial"), a.Get("result.metrics.throughput"), a.Get("phases"))
	}
	if machines := c.virshList(); machines != "" {
		t.Errorf("the machines of the sweep remain: %s", machines)
	}
}

// virshList returns the names of all containers.
func (c *cluster) virshList() string {
	c.Helper()
	out, err := c.Lab.Command(c.Context(), "virsh", "-q", "-c", c.Lab.URI("lxc"), "list", "--all", "--name").Output()
	if err != nil {
		c.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// sweepFolder returns the folder of the last sweep.
func (c *cluster) sweepFolder() string {
	c.Helper()
	all, _ := filepath.Glob(filepath.Join(c.Dir, ".nixbench", "bench", "benchmarks", "*-*"))
	if len(all) == 0 {
		c.Fatal("there is no sweep")
	}
	return all[len(all)-1]
}

// read decodes a JSON file of a sweep.
func read(t *testing.T, file string, v any) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(data, v)
	}
	if err != nil {
		t.Fatal(err)
	}
}
