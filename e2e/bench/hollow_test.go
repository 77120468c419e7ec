package bench

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nixbench/nixbench/e2e/guests"
)

// A known answer: a scheduler that may send 10 requests per second places 10 pods per second on 20 nodes, which are one machine, and more
// without this limit.
func TestHollow(t *testing.T) {
	c := &cluster{guests.New(t, program, 10*time.Minute, "--kubernetes", "--kubernetes-part", "kwok-v0.7.0", "--size", "6G")}
	c.WriteHiveFile(fmt.Sprintf(`let hive = import %s { nixpkgs = %s; uri = %q; poolPath = %q; image = %q; }; in
hive // {
  benchmarks.limited = {
    matrix = {
      "roles.node.count" = [ 1 ];
      "roles.node.hollow" = [ 20 ];
      workload = [ "burst" ];
      qps = {
        ten.roles.head = [ { nixbench.kubernetes.scheduler.extraArgs = { kube-api-qps = 10; kube-api-burst = 10; }; } ];
        unlimited.roles.head = [ { nixbench.kubernetes.scheduler.extraArgs = { kube-api-qps = 1000; kube-api-burst = 2000; }; } ];
      };
    };
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
          nixbench.kubernetes.controllerManager.extraArgs = { kube-api-qps = 1000; kube-api-burst = 2000; };
        }
      ];
    };
  };
}
`, c.Path("../schedulers/hive.nix"), nixpkgs, c.Lab.URIs["lxc"], c.Lab.PoolPath, c.Image))
	out := c.Run("bench", "run", "--unpinned")
	s := c.show()
	c.checkAttempts(s, 2, 3)
	rates := map[string]float64{}
	for _, a := range s.Get("attempts").Array() {
		rates[s.Get("sweep.trials.#(number=="+a.Get("trial").Raw+").cell.qps").String()] = a.Get("result.metrics.bind_rate").Float()
		if hollow := a.Get("result.hollow").Int(); hollow != 20 || a.Get("result.nodes").Int() != 20 {
			t.Errorf("%d of %s nodes are hollow in the result, want 20", hollow, a.Get("result.nodes"))
		}
	}
	if ten := rates["ten"]; ten < 9.7 || ten > 10.3 || rates["unlimited"] < 1.2*ten {
		t.Errorf("the bind rates are %v, want 10 and more", rates)
	}
	if !strings.Contains(out, "limited by kube-scheduler: kube-api-qps") {
		t.Error("bench run does not name the limit")
	}
}
