package bench

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nixbench/nixbench/e2e/guests"
)

// A known answer: a scheduler that may place 5 pods per second places 5 pods per second on 20 nodes, which are one machine.
func TestHollow(t *testing.T) {
	c := &cluster{guests.New(t, program, 10*time.Minute, "--kubernetes", "--kubernetes-part", "kwok-v0.7.0", "--size", "6G")}
	c.WriteHiveFile(fmt.Sprintf(`let hive = import %s { nixpkgs = %s; uri = %q; poolPath = %q; image = %q; }; in
hive // {
  benchmarks.limited = {
    matrix = { "roles.node.count" = [ 1 ]; "roles.node.hollow" = [ 20 ]; workload = [ "burst" ]; };
    workloads.burst = {
      jobs = builtins.genList (i: { id = "j${toString i}"; tasks = 50; nodes = 1; runtime = 1; }) 3;
      timeLimit = "3m";
      kubernetes = { image = "localhost/probe:1"; command = [ "/probe" "sleep" "{runtime}" ]; };
    };
    repetitions = 1;
    pause = 1;
    quiet = { steal = 1; foreignCpu = 1; psiCpu = 1; canary = 1000; swapPages = 1000000; kernelMessages = 1000; clock = 10; };
  };
  cluster = hive.cluster // {
    schedulers = hive.cluster.schedulers // {
      kubernetes.modules = hive.cluster.schedulers.kubernetes.modules ++ [
        {
          nixbench.kubernetes.hollow.capacity.cpu = "64";
          nixbench.kubernetes.scheduler.extraArgs = { kube-api-qps = 5; kube-api-burst = 5; };
          nixbench.kubernetes.controllerManager.extraArgs = { kube-api-qps = 1000; kube-api-burst = 2000; };
        }
      ];
    };
  };
}
`, c.Path("../schedulers/hive.nix"), nixpkgs, c.Lab.URI("lxc"), c.Lab.PoolPath(), c.Image))
	out := c.Run("bench", "run", "--unpinned")
	s := c.show()
	c.checkAttempts(s, 1, 3)
	a := s.Get("attempts.0")
	if rate := a.Get("result.metrics.bind_rate").Float(); rate < 4.85 || rate > 5.15 {
		t.Errorf("the bind rate is %.3g, want 5", rate)
	}
	if !strings.Contains(out, "limited by kube-scheduler: kube-api-qps") {
		t.Error("bench run does not name the limit")
	}
	if hollow := a.Get("result.hollow").Int(); hollow != 20 || a.Get("result.nodes").Int() != 20 {
		t.Errorf("%d of %s nodes are hollow in the result, want 20", hollow, a.Get("result.nodes"))
	}
}
