package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"github.com/nixbench/nixbench/bench/stats"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/e2e/fixture"
	"github.com/nixbench/nixbench/nixeval"
)

// newBenchmarkEvaluator returns an evaluator of a hive with these benchmarks, in Nix. Its node cannot be evaluated.
func newBenchmarkEvaluator(t *testing.T, benchmarks string) *nixeval.Evaluator {
	t.Helper()
	file := filepath.Join(t.TempDir(), "hive.nix")
	text := fmt.Sprintf("{ meta.nixpkgs = import %s { }; node = throw \"a node was evaluated\"; benchmarks = %s; }", fixture.Nixpkgs(t), benchmarks)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return nixeval.New(nixeval.Options{Source: nixeval.Source{File: file, Dir: filepath.Dir(file)}})
}

// The cells are the combinations of all levels that are not excluded. Durations and sizes become numbers.
func TestBenchmarks(t *testing.T) {
	e := newBenchmarkEvaluator(t, `{
    gang = { lib, ... }: {
      matrix = { "roles.worker.count" = [ 2 4 ]; scheduler = [ "kubernetes" "slurm" ]; workload = [ "gang" "null" ]; };
      exclude = cell: cell.scheduler == "kubernetes" && cell.workload == "gang" || cell."roles.worker.count" > 2 && cell.workload == "null";
      workloads.gang = { jobs = lib.jobs.gang { jobs = 2; size = 3; runtime = "250ms"; }; arrival.rate = 2.5; timeLimit = "2m"; };
      claims.faster = { metric = "throughput"; factor = "roles.worker.count"; a = 2; b = 4; op = ">"; value = 1.5; where.workload = "null"; };
    };
    defaults = { };
    program = {
      workloads.file.program = ./play.sh;
      workloads.list.program = [ ./play.sh "--x" "${builtins.derivation { name = "p"; system = "s"; builder = "b"; }}/bin/p" ];
    };
    own = { lib, ... }: { workloads.mixed.jobs = lib.jobs.mixed { jobs = 3; sizes = [ 1 2 ]; runtime = 0.5; }; };
  }`)
	all, err := ReadBenchmarks(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	var cells []string
	for _, c := range all["gang"].Cells {
		cells = append(cells, c["roles.worker.count"]+" "+c["scheduler"]+" "+c["workload"])
	}
	if diff := cmp.Diff([]string{"2 kubernetes null", "2 slurm gang", "2 slurm null", "4 slurm gang"}, cells); diff != "" {
		t.Error(diff)
	}
	claim := stats.Claim{Metric: "throughput", Factor: "roles.worker.count", A: "2", B: "4", Op: ">", Value: 1.5, Where: map[string][]string{"workload": {"null"}}, Baseline: []string{}}
	if diff := cmp.Diff(claim, all["gang"].Claims["faster"]); diff != "" {
		t.Error(diff)
	}
	w := all["gang"].Workloads["gang"]
	if diff := cmp.Diff(Arrival{Rate: 2.5}, w.Arrival); diff != "" || w.TimeLimit != 120 || len(w.Jobs) != 2 {
		t.Errorf("%+v", w)
	}
	if got, want := string(w.Jobs[1]), `{"cpus":1,"gang":true,"id":"j2","nodes":3,"runtime":0.25}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if d := all["defaults"]; len(d.Cells) != 1 || d.Cells[0]["workload"] != "null" || len(d.Workloads["null"].Jobs) != 100 || d.Repetitions != 6 || d.Quiet.ForeignCPU != 0.05 || d.Quiet.Clock != 0.01 || d.Quiet.Kernel != 0 || d.Pause != 5 {
		t.Errorf("%+v", d)
	}
	if o := all["own"]; len(o.Cells) != 1 || len(o.Workloads["mixed"].Jobs) != 3 {
		t.Errorf("a benchmark without a factor workload has the cells %v, want one with its own workload", o.Cells)
	}

	file := all["program"].Workloads["file"].Program
	if len(file) != 1 || !filepath.IsAbs(file[0]) || filepath.Base(file[0]) != "play.sh" || len(all["program"].Workloads["file"].ProgramInputs) > 0 {
		t.Errorf("%+v", all["program"].Workloads["file"])
	}
	list := all["program"].Workloads["list"]
	if len(list.Program) != 3 || list.Program[0] != file[0] || list.Program[1] != "--x" || !strings.HasSuffix(list.Program[2], "-p/bin/p") ||
		len(list.ProgramInputs) != 1 || !strings.HasSuffix(list.ProgramInputs[0], "-p.drv") {
		t.Errorf("%+v", list)
	}

	adHoc, err := ReadBenchmark(t.Context(), e, map[string]any{"matrix": map[string]any{"repeat": []string{"a", "b"}}, "repetitions": 2})
	if err != nil || len(adHoc.Cells) != 2 || adHoc.Repetitions != 2 {
		t.Errorf("%+v, %v", adHoc, err)
	}
}

// The jobs of mixed near saturation come at the rate at which the places do their work, and so do those of churn, which run for different times.
func TestTimedJobs(t *testing.T) {
	e := newBenchmarkEvaluator(t, `{
    b = { lib, ... }: {
      workloads.mixed.jobs = lib.jobs.mixed { jobs = 5; sizes = [ 1 3 ]; runtime = "4s"; cpus = 2; saturation = 0.5; places = 8; };
      workloads.churn.jobs = lib.jobs.churn { jobs = 4; running = 8; runtime = 2; memory = 64; };
    };
  }`)
	all, err := ReadBenchmarks(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]string{
		// A job of one node has 2 × 4 processor seconds of work, which half of 8 processors do in 2 s.
		"mixed": {"1 4 0", "3 4 2", "1 4 8", "3 4 10", "1 4 16"},
		"churn": {"0 1 0", "0 2 0.25", "0 3 0.5", "0 1 0.75"},
	} {
		var got []string
		for _, text := range all["b"].Workloads[name].Jobs {
			j := gjson.ParseBytes(text)
			got = append(got, fmt.Sprintf("%d %v %v", j.Get("nodes").Int(), j.Get("runtime").Float(), j.Get("submit").Float()))
			if j.Get("gang").Bool() != (j.Get("nodes").Int() > 1) || j.Get("memory").Int() != map[string]int64{"mixed": 0, "churn": 64}[name] {
				t.Errorf("%s: %s", name, text)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestInvalidBenchmarks(t *testing.T) {
	for benchmarks, want := range map[string]string{
		`{ b.matrix.workload = [ "none" ]; }`:        "benchmarks.b: matrix.workload has none, and workloads has gang, null",
		`{ b.exclude = _: true; }`:                   "benchmarks.b: exclude leaves out every cell",
		`{ b.repetition = 3; }`:                      "benchmarks.b.repetition' does not exist",
		`{ b.workloads.w.timeLimit = "5 minutes"; }`: "timeLimit",
		`{ b = { lib, ... }: { workloads.w.jobs = lib.jobs.sleep { jobs = 1; runtime = "1 s"; }; }; }`:                                            `a duration is a number of seconds`,
		`{ b = { lib, ... }: { workloads.w.jobs = lib.jobs.mixed { jobs = 1; sizes = [ 1 ]; runtime = 1; saturation = 0.9; }; }; }`:               "lib.jobs.mixed: set both saturation and places",
		`{ b = { lib, ... }: { workloads.w.jobs = lib.jobs.mixed { jobs = 1; sizes = [ 1 ]; runtime = 1; saturation = 0; places = 4; }; }; }`:     "saturation is a share of the places",
		`{ b = { lib, ... }: { workloads.w.jobs = lib.jobs.mixed { jobs = 1; sizes = [ 1 3 ]; runtime = 1; saturation = 0.9; places = 2; }; }; }`: "places is 2, and the largest gang needs 3",
		`{ b = { lib, ... }: { workloads.w.jobs = lib.jobs.churn { jobs = 1; running = 0; runtime = 1; }; }; }`:                                   "lib.jobs.churn: running and runtime must be above 0",
	} {
		if _, err := ReadBenchmarks(t.Context(), newBenchmarkEvaluator(t, benchmarks)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", benchmarks, err, want)
		}
	}
}

// newModulesEvaluator returns an evaluator of a hive with a role, a named node, and these benchmarks.
func newModulesEvaluator(t *testing.T, benchmarks string) *nixeval.Evaluator {
	t.Helper()
	file := filepath.Join(t.TempDir(), "hive.nix")
	text := fmt.Sprintf(`{
  meta.nixpkgs = import %s { };
  cluster.schedulers = { kubernetes.modules = [ ]; slurm.modules = [ ]; };
  cluster.scheduler = "slurm";
  roles.head = { };
  roles.node.count = 2;
  named = { };
  benchmarks = %s;
}`, fixture.Nixpkgs(t), benchmarks)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return nixeval.New(nixeval.Options{Source: nixeval.Source{File: file, Dir: filepath.Dir(file)}})
}

// The modules of a level are in the systems of all nodes, or of those of a role. A benchmark of the command line may use them.
func TestModulesOfLevels(t *testing.T) {
	e := newModulesEvaluator(t, `{
    a = {
      matrix = {
        text = {
          low = [ { environment.etc.level.text = "low"; } ({ lib, ... }: { environment.etc.second.text = "low"; }) ];
          high.roles.head = [ { environment.etc.level.text = "high"; } ];
        };
        workload = [ "null" "gang" ];
      };
      exclude = cell: cell.text == "low" && cell.workload == "gang";
    };
  }`)
	all, err := ReadBenchmarks(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	b := all["a"]
	if diff := cmp.Diff([]string{"high", "low"}, b.Factors["text"]); diff != "" || len(b.Cells) != 3 || b.Modules["text"] != "a" {
		t.Errorf("%+v", b)
	}
	adHoc, err := ReadBenchmark(t.Context(), e, map[string]any{"matrix": map[string]any{"text": []string{"low"}}})
	if err != nil || adHoc.Modules["text"] != "a" || len(adHoc.Cells) != 1 {
		t.Errorf("%+v, %v", adHoc, err)
	}
	for level, want := range map[string]string{
		"low":  `{"head-1":["level","second"],"named":["level","second"],"node-1":["level","second"],"node-2":["level","second"]}`,
		"high": `{"head-1":["level"],"named":[],"node-1":[],"node-2":[]}`,
	} {
		e.ExtraModules = b.ExtraModules(Configuration{Modules: []Level{{Benchmark: "a", Factor: "text", Level: level}}})
		data, err := e.Introspect(t.Context(), nixeval.Expression{Text: `{ nodes, ... }: builtins.mapAttrs (_: n: builtins.filter (x: x == "level" || x == "second") (builtins.attrNames n.config.environment.etc)) nodes`})
		if err != nil || strings.TrimSpace(string(data)) != want {
			t.Errorf("%s: %s, %v", level, data, err)
		}
	}
}

// Errors in levels name their place, are usage errors, and suggest what the hive has.
func TestInvalidLevels(t *testing.T) {
	for benchmarks, want := range map[string]string{
		`{ b.matrix.qps.low = [ 50 ]; }`:                    "benchmarks.b: matrix.qps.low: a NixOS module is an attribute set, a function or a file, but this is an integer",
		`{ b.matrix.qps.low = 50; }`:                        "benchmarks.b: matrix.qps.low: a level is a list of NixOS modules, or { roles.ROLE = [ modules ]; }, but this is an integer",
		`{ b.matrix.qps.low = { services.x = 1; }; }`:       "benchmarks.b: matrix.qps.low: a level is a list of NixOS modules, or { roles.ROLE = [ modules ]; }, but this is a set with services",
		`{ b.matrix.qps.low = { }; }`:                       "benchmarks.b: matrix.qps.low: a level is a list of NixOS modules, or { roles.ROLE = [ modules ]; }, but this is an attribute set",
		`{ b.matrix.qps.low.roles.hed = [ ]; }`:             "benchmarks.b: matrix.qps.low.roles.hed: there is no role hed; the hive has the roles head, node; did you mean head?",
		`{ b.matrix.qps.low.roles.head = { }; }`:            "benchmarks.b: matrix.qps.low.roles.head: modules are a list, but this is an attribute set",
		`{ b.matrix.qps = { }; }`:                           "benchmarks.b: matrix.qps has no levels",
		`{ b.matrix.workload = [ "nul" ]; }`:                "benchmarks.b: matrix.workload has nul, and workloads has gang, null; did you mean null?",
		`{ b.matrix.scheduler = [ "slurm" "kubernets" ]; }`: "benchmarks.b: matrix.scheduler=kubernets: the hive has the schedulers kubernetes, slurm; did you mean kubernetes?",
		`{ b.matrix."roles.nod.count" = [ 1 ]; }`:           "benchmarks.b: matrix.roles.nod.count=1: there is no roles.nod; roles has head, node; did you mean roles.node?",
		`{ b.matrix."roles.node.cuont" = [ 1 ]; }`:          "did you mean roles.node.count?",
		`{ b.matrix."roles.node.count" = [ "many" ]; }`:     "benchmarks.b: matrix.roles.node.count=many: expected a whole number, as the hive has 2 there",
		`{ b.matrix."roles.node.memory" = [ "lots" ]; }`:    "size such as 512M or 4G",
	} {
		e := newModulesEvaluator(t, benchmarks)
		all, err := ReadBenchmarks(t.Context(), e)
		if err == nil {
			err = all["b"].CheckLevels(t.Context(), e, "b")
		}
		if err == nil || failure.KindOf(err) != failure.Usage || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", benchmarks, err, want)
		}
	}
	e := newModulesEvaluator(t, `{ a.matrix.qps.low = [ ]; b.matrix.qps.low = [ ]; c.matrix.size.small = [ ]; }`)
	for factor, want := range map[string]string{
		"qps":  "benchmarks.adhoc: matrix.qps: the modules of its levels are in benchmarks.a and benchmarks.b",
		"size": "benchmarks.adhoc: matrix.size has low, and benchmarks.c has the levels small",
	} {
		if _, err := ReadBenchmark(t.Context(), e, map[string]any{"matrix": map[string]any{factor: []string{"low"}}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("--vary %s: %v, want %q", factor, err, want)
		}
	}
}

// The level tuned of the factor limits lifts limits that the hive does not set. It keeps other parts of SchedulerParameters, and changes no
// worker, and no node of another scheduler.
func TestTuned(t *testing.T) {
	file := filepath.Join(t.TempDir(), "hive.nix")
	modules, err := filepath.Abs("../modules")
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf(`{
  meta.nixpkgs = import %[1]s { };
  defaults = { system.stateVersion = "25.05"; boot.isContainer = true; };
  roles.head.modules = [
    %[2]s/kubernetes/control-plane.nix
    { nixbench.kubernetes = { podCidr = "10.244.0.0/16"; schedulers.second = { }; }; }
  ];
  roles.own.modules = [
    %[2]s/kubernetes/control-plane.nix
    ({ lib, ... }: { nixbench.kubernetes = {
      podCidr = "10.244.0.0/16"; scheduler.extraArgs.kube-api-qps = 50;
      schedulers.second.settings.clientConnection = { qps = 60; burst = lib.mkDefault 70; };
    }; })
  ];
  roles.node.modules = [ %[2]s/kubernetes/worker.nix { nixbench.kubernetes.podCidr = "10.244.0.0/16"; } ];
  roles.other.modules = [ ];
  roles.controller.modules = [ %[2]s/slurm/controller.nix { nixbench.slurm.controller = { name = "c"; address = "10.0.0.1"; }; } ];
  roles.tuned.modules = [ %[2]s/slurm/controller.nix { nixbench.slurm = { controller = { name = "t"; address = "10.0.0.1"; }; settings.SchedulerParameters = "defer"; schedulerParameters.bf_interval = 5; }; } ];
  roles.set.modules = [ %[2]s/slurm/controller.nix { nixbench.slurm = { controller = { name = "s"; address = "10.0.0.1"; }; settings.SchedulerParameters = [ "batch_sched_delay=2" ]; }; } ];
}`, fixture.Nixpkgs(t), modules)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	workers := map[bool]string{}
	for high, want := range map[bool]string{
		false: `{"head-1":{"c":100,"o":null,"s":null},"own-1":{"c":100,"o":{"burst":70,"qps":60},"s":50}}`,
		true:  `{"head-1":{"c":5000,"o":{"burst":5000,"qps":5000},"s":5000},"own-1":{"c":5000,"o":{"burst":5000,"qps":60},"s":50}}`,
	} {
		e := nixeval.New(nixeval.Options{Source: nixeval.Source{File: file, Dir: filepath.Dir(file)}})
		level := map[bool]string{false: Default, true: Tuned}[high]
		e.ExtraModules = (Benchmark{}).ExtraModules(Configuration{Levels: map[string]string{LimitsFactor: level}})
		data, err := e.Introspect(t.Context(), nixeval.Expression{Text: `{ nodes, ... }: builtins.mapAttrs (_: n: let k = n.config.nixbench.kubernetes; in {
			s = k.scheduler.extraArgs.kube-api-qps or null; c = k.controllerManager.extraArgs.kube-api-qps;
			o = k.schedulers.second.settings.clientConnection or null; })
			{ inherit (nodes) head-1 own-1; }`})
		if err != nil || strings.TrimSpace(string(data)) != want {
			t.Errorf("tuned %t: %s, %v", high, data, err)
		}
		data, err = e.Introspect(t.Context(), nixeval.Expression{Text: `{ nodes, ... }: map (n: n.config.system.build.toplevel.drvPath) [ nodes.node-1 nodes.other-1 ]`})
		if err != nil {
			t.Fatal(err)
		}
		workers[high] = string(data)
		data, err = e.Introspect(t.Context(), nixeval.Expression{Text: `{ nodes, ... }: builtins.mapAttrs (_: n: builtins.filter (l:
			builtins.isString l && builtins.match "(SchedulerParameters|Epilog)=.*" l != null) (builtins.split "\n" n.config.services.slurm.extraConfig))
			{ inherit (nodes) controller-1 tuned-1 set-1; }`})
		slurm := map[bool]string{
			false: `{"controller-1":[],"set-1":["SchedulerParameters=batch_sched_delay=2"],"tuned-1":["SchedulerParameters=defer,bf_interval=5"]}`,
			true: `{"controller-1":["Epilog=/run/current-system/sw/bin/true","SchedulerParameters=batch_sched_delay=0"],` +
				`"set-1":["Epilog=/run/current-system/sw/bin/true","SchedulerParameters=batch_sched_delay=2"],` +
				`"tuned-1":["Epilog=/run/current-system/sw/bin/true","SchedulerParameters=defer,batch_sched_delay=0,bf_interval=5"]}`,
		}[high]
		if err != nil || strings.TrimSpace(string(data)) != slurm {
			t.Errorf("tuned %t, SLURM: %s, %v", high, data, err)
		}
	}
	if workers[true] != workers[false] {
		t.Errorf("tuned limits change a worker or another node: %s, %s", workers[true], workers[false])
	}
}
