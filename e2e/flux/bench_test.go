package flux

import (
	"strings"
	"testing"

	"github.com/tidwall/gjson"
)

// A benchmark submits its jobs to a real instance: single tasks, a gang, jobs that wait for others, and jobs that fail.
func TestBenchmark(t *testing.T) {
	c := newCluster(t)
	c.writeHive(2, "", `benchmarks.small = { lib, ... }: {
      workloads.mixed = {
        jobs = lib.jobs.null { jobs = 20; } ++ [
          { id = "gang"; nodes = 2; gang = true; runtime = 0.5; }
          { id = "uneven"; nodes = 2; tasks = 3; }
          { id = "last"; after = [ "gang" "j1" ]; submit = 0.5; }
        ];
        timeLimit = "2m";
      };
      workloads.refused.jobs = [ { id = "a"; queue = "none"; } { id = "b"; after = [ "a" ]; } { id = "long"; runtime = 3600; } ];
      workloads.refused.timeLimit = "15s";
      repetitions = 1;
      reset = "clean";
      pause = 1;
      quiet = { steal = 1; foreignCpu = 1; psiCpu = 1; canary = 1000; };
    };`)
	c.Run("bench", "run", "--unpinned")
	out := c.Run("bench", "show", "--json")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	attempts := gjson.Parse(lines[len(lines)-1]).Get("result.attempts").Array()
	if len(attempts) != 2 {
		t.Fatalf("%d attempts", len(attempts))
	}
	for _, a := range attempts {
		c.Logf("%s, limits %s, usage %s", a.Get("result"), a.Get("limits"), a.Get("usage"))
		r := a.Get("result")
		switch r.Get("jobs").Int() {
		case 23:
			if r.Get("finished").Int() != 23 || r.Get("metrics.throughput").Float() <= 0 || r.Get("metrics.submit_error_max").Float() > 1 {
				t.Errorf("%s", r)
			}
		default:
			if r.Get("finished").Int() != 1 || r.Get("failed").Int() != 1 {
				t.Errorf("%s", r)
			}
		}
		if !strings.Contains(a.Get("limits").Raw, "queue-depth") || a.Get("usage.flux-broker.memory").Int() == 0 {
			t.Errorf("limits %s, usage %s", a.Get("limits"), a.Get("usage"))
		}
	}
}
