package bench

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nixbench/nixbench/bench/noise"
	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/bench/trial"
)

// paths returns store paths from their hashes and names.
func paths(names ...string) []string {
	var out []string
	for _, n := range names {
		out = append(out, "/nix/store/"+n)
	}
	return out
}

func configuration(scheduler string, closure ...string) Configuration {
	return Configuration{Levels: map[string]string{"scheduler": scheduler}, Closure: paths(closure...)}
}

func TestCompare(t *testing.T) {
	a := Sweep{Nixbench: "1", Workloads: map[string]Workload{"w": {Hash: "h"}}, Configurations: []Configuration{configuration("one", "aaa-etc", "bbb-bash-5", "ccc-curl-8")}}
	if got := Compare(a, a); got != nil {
		t.Errorf("a sweep differs from itself: %v", got)
	}
	b := a
	b.Workloads = map[string]Workload{"w": {Hash: "other"}}
	b.Configurations = []Configuration{configuration("one", "ddd-etc", "bbb-bash-5", "ccc-curl-8")}
	b.Benchmark.Client = "client"
	want := []Difference{
		{What: "the client", A: "none", B: "client"}, {What: "the workload w", A: "h", B: "other"},
		{What: "the systems of one", A: "differ in 2 of 4 paths", B: "etc"},
	}
	if diff := cmp.Diff(want, Compare(a, b)); diff != "" {
		t.Error(diff)
	}
	got := DescribeClosures(a.Configurations[0].Closure, append([]string{"/nix/store/eee-new-1"}, b.Configurations[0].Closure[:2]...))
	if diff := cmp.Diff([]string{"- curl-8", "changed: etc", "+ new-1"}, got); diff != "" {
		t.Error(diff)
	}
}

// What a benchmark declares is compared: thresholds, pause, warm-up, time limit and settings of players.
func TestCompareBenchmarks(t *testing.T) {
	w := func(limit float64, players string) map[string]WorkloadOptions {
		return map[string]WorkloadOptions{"w": {TimeLimit: limit, Players: map[string]json.RawMessage{"slurm": json.RawMessage(players)}}}
	}
	a := Sweep{Host: Host{Nix: "nix (Nix) 2.28"}, Workloads: map[string]Workload{"w": {}}, Benchmark: Benchmark{Reset: "fresh", Repetitions: 6, Pause: 1, Workloads: w(60, `{}`)}}
	b := Sweep{Host: Host{Nix: "nix (Nix) 2.31"}, Workloads: map[string]Workload{"w": {}}, Benchmark: Benchmark{Reset: "clean", Repetitions: 12, Pause: 2, Warmup: 1, Quiet: noise.Thresholds{Steal: 0.5}, Workloads: w(90, `{"a":1}`)}}
	const rest = `"foreignCpu":0,"psiCpu":0,"canary":0,"swapPages":0,"kernelMessages":0,"clock":0,"frequency":0`
	want := []Difference{
		{What: "the version of Nix", A: "nix (Nix) 2.28", B: "nix (Nix) 2.31"},
		{What: "the seconds of the pause before a workload", A: "1", B: "2"},
		{What: "the thresholds of noise", A: `{"steal":0,` + rest + `}`, B: `{"steal":0.5,` + rest + `}`},
		{What: "the reset", A: "fresh", B: "clean"},
		{What: "the number of warm-up blocks", A: "0", B: "1"},
		{What: "the time limit of the workload w", A: "1m0s", B: "1m30s"}, {What: "the players of the workload w", A: `{"slurm":{}}`, B: `{"slurm":{"a":1}}`},
	}
	if diff := cmp.Diff(want, Compare(a, b)); diff != "" {
		t.Error(diff)
	}
}

// One cause that changes several configurations is one difference. A configuration that keeps what another one replaces has another cause.
func TestCompareCauses(t *testing.T) {
	before := []Configuration{
		configuration("one", "a1-glibc-2", "b1-kubernetes-1", "c1-etc"),
		configuration("two", "a1-glibc-2", "b1-slurm-25", "c2-etc"),
		configuration("three", "a1-glibc-2", "b1-flux-0", "c3-etc"),
	}
	for name, test := range map[string]struct {
		after []Configuration
		want  []Difference
	}{
		"a library of all": {
			[]Configuration{
				configuration("one", "a2-glibc-2", "b2-kubernetes-1", "c4-etc"), configuration("two", "a2-glibc-2", "b2-slurm-25", "c5-etc"),
				configuration("three", "a2-glibc-2", "b2-flux-0", "c6-etc"),
			},
			[]Difference{{
				What: "the systems of one; two; three",
				A:    "differ in 6 of 6 paths and 6 of 6 paths and 6 of 6 paths", B: "etc, flux-0, glibc-2, kubernetes-1, slurm-25",
			}},
		},
		"the configuration of two": {
			[]Configuration{configuration("one", "a1-glibc-2", "b1-kubernetes-1", "c4-etc"), configuration("two", "a1-glibc-2", "b1-slurm-25", "c5-etc"), before[2]},
			[]Difference{{What: "the systems of one; two", A: "differ in 2 of 4 paths and 2 of 4 paths", B: "etc"}},
		},
		"a library of one, and the configuration of another": {
			[]Configuration{configuration("one", "a2-glibc-2", "b1-kubernetes-1", "c1-etc"), configuration("two", "a1-glibc-2", "b1-slurm-25", "c5-etc"), before[2]},
			[]Difference{
				{What: "the systems of one", A: "differ in 2 of 4 paths", B: "glibc-2"},
				{What: "the systems of two", A: "differ in 2 of 4 paths", B: "etc"},
			},
		},
	} {
		if diff := cmp.Diff(test.want, Compare(Sweep{Configurations: before}, Sweep{Configurations: test.after})); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// With the same source, systems and hollow nodes differ because of --set, which is one cause.
func TestCompareSets(t *testing.T) {
	a := Sweep{SourceHash: "h", Sets: []string{"roles.node.count=8"}, Configurations: []Configuration{configuration("one", "c1-etc"), configuration("two", "c2-etc")}}
	b := Sweep{SourceHash: "h", Sets: []string{"roles.node.count=1", "roles.node.hollow=8"}, Configurations: []Configuration{configuration("one", "c3-etc"), configuration("two", "c4-etc")}}
	for i := range b.Configurations {
		b.Configurations[i].Hollow = 8
	}
	want := []Difference{
		{What: "the arguments of --set", A: "roles.node.count=8", B: "roles.node.count=1 roles.node.hollow=8"},
		{What: "the hollow nodes of one; two", A: "0", B: "8", Follows: true},
		{What: "the systems of one; two", A: "differ in 2 of 2 paths and 2 of 2 paths", B: "etc", Follows: true},
	}
	got := Compare(a, b)
	if diff := cmp.Diff(want, got); diff != "" || CountCauses(got) != 1 {
		t.Errorf("%d causes: %s", CountCauses(got), diff)
	}
	b.SourceHash = "other"
	if n := CountCauses(Compare(a, b)); n != 3 {
		t.Errorf("%d causes with another source, want 3", n)
	}
}

// What is recorded of trials is compared: the size of the cluster, where commands ran, and limits.
func TestCompareResults(t *testing.T) {
	s := Sweep{Configurations: []Configuration{configuration("one")}, Trials: []Trial{{Number: 1, Block: 1, Cell: map[string]string{"workload": "null"}}}}
	attempts := func(nodes, cpus int, place, qps string) map[int][]Attempt {
		return map[int][]Attempt{1: {{State: Failed}, {
			State: Valid, Limits: []player.Limit{{Name: "kube-api-qps", Value: qps}}, Place: &player.Place{Commands: place}, Result: trial.Result{Nodes: nodes, CPUs: cpus},
		}}}
	}
	a, b := attempts(2, 4, "head-1", "50"), attempts(2, 8, "client-1", "1000")
	got := CompareResults(s, s, a, b, []Difference{{What: "the client"}})
	want := []Difference{
		{What: "the size of the cluster of one", A: "2 nodes with 4 processors", B: "2 nodes with 8 processors", Follows: true},
		{What: "the node with the commands of one", A: "head-1", B: "client-1", Follows: true},
		{What: "kube-api-qps of one", A: "50", B: "1000"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got := CompareResults(s, s, a, b, []Difference{{What: "the systems of one"}}); !got[2].Follows || got[0].Follows {
		t.Errorf("%+v", got)
	}
}

// Pairs of configurations differ in one factor. What a size does not declare is marked.
func TestCompareLevels(t *testing.T) {
	c := func(scheduler, count string, closure ...string) Configuration {
		return Configuration{Levels: map[string]string{"scheduler": scheduler, "roles.node.count": count}, Closure: paths(closure...)}
	}
	s := Sweep{Configurations: []Configuration{
		c("one", "2", "a1-glibc-2", "b1-nixos-system-node-1-26.05", "c1-hosts", "d1-unit-a-1.service"),
		c("one", "4", "a1-glibc-2", "b2-nixos-system-node-1-26.05", "c2-hosts", "d2-unit-a-1.service"),
		c("two", "4", "a2-glibc-2", "b3-nixos-system-node-1-26.05", "c2-hosts"),
		c("three", "8", "a1-glibc-2", "e1-extra-1"),
	}}
	s.Trials = []Trial{{Number: 1}, {Number: 2, Configuration: 1}}
	got := s.CompareLevels(map[int][]Attempt{
		1: {{State: Valid, Limits: []player.Limit{{Name: "qps", Value: "50"}}}}, 2: {{State: Suspect, Limits: []player.Limit{{Name: "qps", Value: "100"}}}},
	})
	var text []string
	for _, d := range got {
		text = append(text, FormatCell(d.A)+" | "+FormatCell(d.B)+" | "+strings.Join(d.Factors, " ")+" | "+d.String()+" | "+strings.Join(d.Undeclared, ", "))
	}
	want := []string{
		"roles.node.count=2 scheduler=one | roles.node.count=4 scheduler=one | roles.node.count | differs in 6 of 7 paths | qps is 50 and 100",
		"roles.node.count=4 scheduler=one | roles.node.count=4 scheduler=two | scheduler | differs in 5 of 6 paths | ",
		"roles.node.count=2 scheduler=one | roles.node.count=8 scheduler=three | roles.node.count scheduler | differs in 4 of 5 paths | ",
	}
	if diff := cmp.Diff(want, text); diff != "" {
		t.Error(diff)
	}
	s.Configurations[0].Closure = paths("a1-glibc-2.40", "c1-kubelet-node-1.yaml", "f1-initrd-linux-6.12")
	s.Configurations[1].Closure = paths("a9-glibc-2.40", "e1-extra-1.0", "c2-kubelet-node-1.yaml", "c3-kubelet-node-2.yaml", "f2-initrd-linux-6.12")
	got = s.CompareLevels(nil)
	if diff := cmp.Diff([]string{"only the second has extra-1.0", "another build of glibc-2.40"}, got[0].Undeclared); diff != "" {
		t.Error(diff)
	}
}
