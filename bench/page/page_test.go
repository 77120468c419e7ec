package page

import (
	"bytes"
	"encoding/xml"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nixbench/nixbench/bench"
	"github.com/nixbench/nixbench/bench/noise"
	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/bench/stats"
	"github.com/nixbench/nixbench/bench/trial"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// blocks returns a sweep with this number of blocks.
func blocks(n int) bench.Sweep { return bench.Sweep{Benchmark: bench.Benchmark{Repetitions: n}} }

// example returns a sweep of two schedulers with 10, 30 and 100 nodes and an A/A cell. The throughput of one of them falls with the nodes.
func example(t *testing.T) Input {
	t.Helper()
	defaults := map[string]string{"scheduler": "default"}
	in := Input{
		Sweep: bench.Sweep{
			ID: "schedulers", Created: time.Date(2026, 11, 21, 2, 0, 0, 0, time.UTC), Revision: "3f2a9c1",
			Benchmark: bench.Benchmark{
				Order: "random in blocks", Seed: 7, Repetitions: 6, Metrics: []string{"throughput"},
				Quiet: noise.Thresholds{Steal: 0.01, ForeignCPU: 0.05, PSICPU: 0.05, Canary: 0.05},
			},
		},
		Notes: []string{"emulated machines: no absolute figures"},
		Systems: []bench.LevelDifference{
			{A: defaults, B: map[string]string{"scheduler": "volcano"}, Changed: 3, Paths: 214, Packages: []string{"+ volcano-1.13.0", "changed: etc"}},
			{A: map[string]string{"nodes": "10"}, B: map[string]string{"nodes": "30"}, Changed: 2, Paths: 210, Packages: []string{"changed: linux-6.12"}, Undeclared: []string{"another build of linux-6.12"}},
			{A: map[string]string{"nodes": "30"}, B: map[string]string{"nodes": "100"}, Paths: 210},
		},
	}
	for _, scheduler := range []string{"default", "volcano"} {
		for _, nodes := range []string{"10", "30", "100"} {
			in.Cells = append(in.Cells, map[string]string{"scheduler": scheduler, "nodes": nodes, bench.RepeatFactor: "1"})
		}
	}
	in.Cells = append(in.Cells, map[string]string{"scheduler": "default", "nodes": "10", bench.RepeatFactor: "2"})
	r, other := rand.New(rand.NewPCG(1, 1)), rand.New(rand.NewPCG(2, 2))
	centre := map[string]float64{"default 10": 50, "default 30": 49, "default 100": 48, "volcano 10": 40, "volcano 30": 30, "volcano 100": 15}
	limits := map[string][]player.Limit{
		"default": {{Name: "kube-scheduler: kube-api-qps", Value: "50", Rate: 50, Kind: player.Bound}, {Name: "slurmctld: SchedulerParameters", Value: "default_queue_depth=100"}},
	}
	order := 0
	for block := 1; block <= 6; block++ {
		for _, i := range r.Perm(len(in.Cells)) {
			order++
			c := in.Cells[i]
			rate := centre[c["scheduler"]+" "+c["nodes"]] * math.Exp(0.01*r.NormFloat64())
			wait := 100 / rate * math.Exp(0.05*r.NormFloat64())
			in.Trials = append(in.Trials, Trial{
				Sample: stats.Sample{Cell: c, Block: block, Order: order, Metrics: map[string]float64{
					"throughput": rate * 0.9, "bind_rate": rate, "wait_p50": wait, "wait_p90": 3 * wait, "wait_p99": 8 * wait, "wait_max": 20 * wait,
					"scheduler_cpu": 3 * wait,
				}},
				Attempt: bench.Attempt{
					State: bench.Valid, Result: trial.Result{CPUs: 16}, Limits: limits[c["scheduler"]],
					Noise: &noise.Report{Steal: new(0.001), ForeignCPU: new(0.01 * other.Float64()), PSICPU: new(0.04 * other.Float64()), SpinRatio: new(1 + 0.02*other.NormFloat64())},
				},
			})
		}
	}
	in.Trials[4].State, in.Trials[4].Reasons = bench.Suspect, []string{"the clock of worker-3 was 40 ms late"}
	in.Trials[9].Noise.ForeignCPU = new(0.9)
	in.Trials[9].State, in.Trials[9].Reasons, in.Trials[9].Incomplete = bench.Invalid, []string{"another process used 90 % of a processor"}, true
	var samples []stats.Sample
	for _, trial := range in.Trials {
		if trial.State != bench.Invalid {
			trial.Sample.Cell = stats.Without(trial.Cell, bench.RepeatFactor)
			samples = append(samples, trial.Sample)
		}
	}
	for name, c := range map[string]stats.Claim{
		"a-slower": {Metric: "throughput", Factor: "scheduler", A: "volcano", B: "default", Op: "<", Value: 0.9},
		"b-nodes":  {Metric: "wait_p50", Factor: "nodes", A: "100", B: "30", Op: ">", Value: 2, Where: map[string][]string{"scheduler": {"default"}}},
		"c-none":   {Metric: "makespan", Factor: "nodes", A: "100", B: "10", Op: ">", Value: 2},
		"d-rate":   {Metric: "throughput", Op: ">=", Value: 10, Where: map[string][]string{"scheduler": {"default"}}},
	} {
		in.Claims = append(in.Claims, c.Evaluate(name, samples, nil, in.Sweep.Level()))
	}
	slices.SortFunc(in.Claims, func(a, b stats.ClaimResult) int { return strings.Compare(a.Name, b.Name) })
	return in
}

func render(t *testing.T, in Input) string {
	t.Helper()
	var b bytes.Buffer
	if err := Render(&b, in); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func checkGolden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs; if that is right, run go test ./bench/page -update\n%s", file, diff)
	}
}

var styles = regexp.MustCompile(`(?s)<style>.*</style>`)

func TestGolden(t *testing.T) {
	in := example(t)
	checkGolden(t, "sweep.html", styles.ReplaceAllString(render(t, in), "<style></style>"))
	var text strings.Builder
	for _, table := range SummaryTables(in) {
		fmt.Fprintf(&text, "# %s\n%s\n%s\n", table.Title, table.Note, strings.Join(table.Head, " | "))
		for _, row := range table.Rows {
			if len(row) != len(table.Head) {
				t.Errorf("a row of %s has %d columns, its head has %d", table.Title, len(row), len(table.Head))
			}
			text.WriteString(strings.Join(row, " | ") + "\n")
		}
	}
	checkGolden(t, "sweep.txt", text.String())
}

// TestContent checks what the golden file alone would not: the parts have the right content.
func TestContent(t *testing.T) {
	page := render(t, example(t))
	for _, want := range []string{
		`<td>kube-scheduler: kube-api-qps</td><td>50.0 /s</td><td>default nodes=10; default nodes=30; default nodes=100</td>`,
		`<span class="pill v-valid">40 valid</span> <span class="pill v-suspect">1 suspect</span> <span class="pill v-invalid">1 invalid</span>`,
		`jobs/s by nodes`, `emulated machines: no absolute figures`, `&#43; volcano-1.13.0`, `<td>differs in 3 of 214 paths</td>`,
		`<td>another build of linux-6.12</td>`, `<p class="note">Confounded: levels differ in something that the matrix does not declare`, `<td>another process used 90 % of a processor</td><td>default nodes=10 repeat=2 block 2: invalid</td>`, `<td>not all jobs finished</td>`, `scheduler_cpu`,
		`holds (claim a-slower)`, `<td>a-slower: throughput of scheduler=volcano to scheduler=default &lt; 0.9</td>`, `<td>primary</td>`, `<td>exploratory</td>`, `<td>the clock of worker-3 was 40 ms late</td>`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not contain %s", want)
		}
	}
	in := example(t)
	a := analyse(in)
	for _, r := range a.ratios {
		want := "less"
		switch {
		case r.Factor == bench.RepeatFactor:
			t.Errorf("the equal cells are among the comparisons: %+v", r)
		case r.Kind == ofClaim:
			want = "holds (claim a-slower)"
		case r.Metric == "wait_p50" || r.Metric == "wait_p99":
			want = "more"
		}
		// The default scheduler depends little on the number of nodes.
		if r.Factor == "scheduler" && r.Answer != want {
			t.Errorf("%s of %s to %s with %v: %s, want %s", r.Metric, r.A, r.B, r.Cell, r.Answer, want)
		}
		if isClaim := r.Metric == "throughput" && r.Factor == "scheduler" || r.Metric == "wait_p50" && r.B == "30" && r.Cell["scheduler"] == "default"; isClaim != (r.Kind == ofClaim) ||
			!isClaim && (r.Metric == "throughput") != (r.Kind == primary) {
			t.Errorf("%s of %s to %s with %v is %s", r.Metric, r.A, r.B, r.Cell, r.Kind)
		}
	}
	if len(a.floor) != 4 {
		t.Errorf("%d comparisons of equal cells, want one per metric", len(a.floor))
	}
	if got := strings.Count(page, ` hollow"`); got != 4 { // one for each metric
		t.Errorf("%d hollow points", got)
	}
	// An invalid trial changes no mean.
	for i := range in.Trials {
		if in.Trials[i].State == bench.Invalid {
			in.Trials[i].Metrics["throughput"] = 1e9
		}
	}
	if diff := cmp.Diff(SummaryTables(example(t)), SummaryTables(in)); diff != "" {
		t.Errorf("an invalid trial changes the summary: %s", diff)
	}
}

// TestHostileTexts: texts of hives and sweeps are escaped, whatever they contain.
func TestHostileTexts(t *testing.T) {
	const evil = `<script>alert(1)</script>"' onload=x &amp; javascript:x </style><img src=//evil.example/x>`
	in := Input{
		Sweep: bench.Sweep{ID: evil, Description: evil, Revision: evil, Nixbench: evil, Benchmark: bench.Benchmark{Order: evil}}, Notes: []string{evil},
		Cells:   []map[string]string{{evil: evil, "n": "1"}, {evil: evil, "n": "2"}, {evil: "b", "n": "2"}},
		Systems: []bench.LevelDifference{{A: map[string]string{evil: evil}, B: map[string]string{evil: evil}, Packages: []string{evil}, Undeclared: []string{evil}}},
		Claims: []stats.ClaimResult{{
			Name: evil, Text: evil, Verdict: evil, Reason: evil, Parts: []stats.ClaimPart{{Cell: map[string]string{evil: evil}, Verdict: evil}},
		}},
	}
	for i, c := range in.Cells {
		for block := range 6 {
			in.Trials = append(in.Trials, Trial{
				Sample:  stats.Sample{Cell: c, Block: block, Order: 6*i + block, Metrics: map[string]float64{evil: 2, "wait_p50": 1}},
				Attempt: bench.Attempt{State: evil, Reasons: []string{evil}, Limits: []player.Limit{{Name: evil, Value: evil, Rate: 1, Kind: evil}}},
			})
		}
	}
	page := render(t, in)
	for _, bad := range []string{"<script", "<img", "onload=x &amp; ", `"' onload`} {
		if strings.Contains(page, bad) {
			t.Errorf("the page contains %s", bad)
		}
	}
	if strings.Count(page, "&lt;script&gt;") < 30 {
		t.Error("the texts are not on the page")
	}
	checkXML(t, page)
}

// checkXML fails if the elements of a page are not nested correctly.
func checkXML(t *testing.T, page string) {
	t.Helper()
	page = regexp.MustCompile(`<(meta|link) [^>]*>|<br>|<!doctype html>`).ReplaceAllString(styles.ReplaceAllString(page, ""), "")
	d := xml.NewDecoder(strings.NewReader(page))
	d.Entity = xml.HTMLEntity
	for {
		if _, err := d.Token(); err == io.EOF {
			return
		} else if err != nil {
			t.Fatalf("the page is not well-formed: %v", err)
		}
	}
}

// TestSelfContained: the page loads no files and has no scripts, and each position in it is a number.
func TestSelfContained(t *testing.T) {
	page := render(t, example(t))
	for _, bad := range []string{"http:", "https:", "<script", "@import", "url(", "src=", "NaN", "Inf", "ZgotmplZ"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page contains %s", bad)
		}
	}
	checkXML(t, page)
}

// TestStrange: sweeps without trials, with one trial, and with strange values give a page.
func TestStrange(t *testing.T) {
	one := func(metrics map[string]float64) Input {
		trial := Trial{Sample: stats.Sample{Cell: map[string]string{}, Metrics: metrics}, Attempt: bench.Attempt{State: bench.Valid}}
		return Input{Sweep: bench.Sweep{ID: "one"}, Cells: []map[string]string{{}}, Trials: []Trial{trial}}
	}
	for name, in := range map[string]Input{
		"nothing":     {},
		"one trial":   one(map[string]float64{"throughput": 5, "wait_p50": 1}),
		"no metrics":  one(nil),
		"zero":        one(map[string]float64{"throughput": 0, "wait_p50": 0}),
		"negative":    one(map[string]float64{"throughput": 1e-9, "wait_p50": -0.5, "wait_max": 1e12}),
		"all invalid": {Trials: []Trial{{Sample: stats.Sample{Metrics: map[string]float64{"throughput": 5}}, Attempt: bench.Attempt{State: bench.Invalid}}}},
	} {
		t.Run(name, func(t *testing.T) {
			page := render(t, in)
			checkXML(t, page)
			if strings.Contains(page, "NaN") || strings.Contains(page, "Inf") {
				t.Error("a position is not a number")
			}
			SummaryTables(in)
		})
	}
}

func TestTicks(t *testing.T) {
	for _, c := range []struct {
		low, high float64
		want      string
	}{
		{0, 10, "0 5 10"}, {3, 47, "0 20 40"}, {0, 0, "0 0.5 1"}, {-1, 3, "-1 0 1 2 3"}, {0, 0.0021, "0 0.001 0.002"}, {0, 3e7, "0 1e+07 2e+07 3e+07"},
	} {
		_, ticks := heights(c.low, c.high)
		var got []string
		for _, tick := range ticks {
			got = append(got, tick.Text)
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("the ticks from %v to %v are %s, want %s", c.low, c.high, text, c.want)
		}
	}
}

// A ratio that is unknown because trials did not finish has no mark, and no number.
func TestUnfinished(t *testing.T) {
	in := Input{Sweep: blocks(6)}
	for block := 1; block <= 6; block++ {
		for _, level := range []string{"a", "b"} {
			c := map[string]string{"s": level}
			trial := Trial{Sample: stats.Sample{Cell: c, Block: block, Order: len(in.Trials) + 1, Metrics: map[string]float64{"throughput": 2}}, Attempt: bench.Attempt{State: bench.Valid}}
			if level == "a" && block == 1 {
				trial.Metrics, trial.Incomplete = nil, true
			}
			in.Trials = append(in.Trials, trial)
		}
	}
	page := render(t, in)
	if !strings.Contains(page, "unclear: 1 of 12 trials did not finish") || strings.Contains(page, "Inf") || strings.Contains(page, "NaN") || strings.Contains(page, `cx=""`) {
		t.Error(page)
	}
	var text strings.Builder
	for _, table := range SummaryTables(in) {
		fmt.Fprintln(&text, table.Rows)
	}
	if !strings.Contains(text.String(), "– – unclear: 1 of 12 trials did not finish exploratory") {
		t.Error(text.String())
	}
}

// A cell in which some trials did not finish does not look fast: they count as the slowest, and the texts contain their number.
func TestIncomplete(t *testing.T) {
	in := Input{Sweep: blocks(6)}
	for block := 1; block <= 6; block++ {
		for level, incomplete := range map[string]int{"none": 0, "some": 2, "most": 4, "all": 6} {
			c := map[string]string{"s": level, "n": "1"}
			trial := Trial{Attempt: bench.Attempt{State: bench.Valid}, Sample: stats.Sample{
				Cell: c, Incomplete: block <= incomplete, Block: block, Order: len(in.Trials) + 1, Metrics: map[string]float64{"throughput": 1, "wait_p50": 1, "makespan": 10 * float64(block)},
			}}
			if trial.Incomplete {
				delete(trial.Metrics, "makespan")
			}
			in.Trials = append(in.Trials, trial)
		}
	}
	for _, level := range []string{"none", "some", "most", "all"} {
		in.Cells = append(in.Cells, map[string]string{"s": level, "n": "1"})
	}
	got := map[string]string{}
	for _, table := range SummaryTables(in) {
		for _, row := range table.Rows {
			if table.Title == "Means" && row[0] == "makespan" {
				got[row[1]] = row[2] + " (" + row[3] + "), " + row[4]
			}
			if table.Title == "Ratios" && row[0] == "throughput" && strings.HasPrefix(row[1], "s=some") && row[5] != "same within ±3 % (2 of 12 trials did not finish)" {
				t.Errorf("throughput: %s", row[5])
			}
		}
	}
	want := map[string]string{
		"s=none": "29.9 s (14.9 to 60.0), 6", "s=some": "did not finish (–), 6, 2 did not finish", "s=most": "did not finish (–), 6, 4 did not finish", "s=all": "did not finish (–), 6, 6 did not finish",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	page := render(t, in)
	checkXML(t, page)
	if strings.Contains(page, "Inf") || strings.Contains(page, "NaN") || strings.Count(page, "did not finish") < 8 {
		t.Error("the page does not contain what did not finish")
	}
}

// The same limit of several cells is one row.
func TestTextLimits(t *testing.T) {
	in := example(t)
	for i, x := range in.Trials {
		if x.Cell["scheduler"] == "volcano" {
			in.Trials[i].Limits = []player.Limit{{Name: "kube-scheduler: kube-api-qps", Rate: 50}}
		}
	}
	for _, table := range SummaryTables(in) {
		if table.Title != "Limits" {
			continue
		}
		if len(table.Rows) != 1 || table.Rows[0][2] != "default nodes=10; default nodes=30; default nodes=100; volcano nodes=10; volcano nodes=30; volcano nodes=100" {
			t.Errorf("%q", table.Rows)
		}
		return
	}
	t.Error("there are no limits")
}

// The page names the computer, the versions of schedulers, each workload, and the thresholds that differ from the defaults of the options.
func TestFacts(t *testing.T) {
	in := example(t)
	in.Sweep.Host = bench.Host{CPUs: 2, CPU: "EPYC", Memory: 4096, Kernel: "6.12", Libvirt: "9.0.0"}
	in.Engines = "one-1.34.4, two-24.11.5"
	in.Sweep.Workloads = map[string]bench.Workload{"": {Jobs: 40, Tasks: 80}}
	in.Sweep.Benchmark.Workloads = map[string]bench.WorkloadOptions{"": {TimeLimit: 60}}
	options, err := os.ReadFile("../nix/options.nix")
	if err != nil {
		t.Fatal(err)
	}
	value := func(name string) (v float64) {
		m := regexp.MustCompile(`(?s)\n          ` + name + ` = mkOption \{.*?default = "?([0-9.e-]+)`).FindSubmatch(options)
		if m == nil {
			t.Fatalf("options.nix has no default of quiet.%s", name)
		}
		if _, err := fmt.Sscan(string(m[1]), &v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	in.Sweep.Benchmark.Quiet = noise.Thresholds{
		Steal: value("steal"), ForeignCPU: value("foreignCpu"), PSICPU: value("psiCpu"), Canary: value("canary"), SwapPages: value("swapPages"),
		Kernel: value("kernelMessages"), Clock: value("clock") / 1000, Frequency: value("frequency"),
	}
	page := render(t, in)
	for _, want := range []string{
		"2 × EPYC, 4096 MiB of memory", "Linux 6.12, libvirt 9.0.0<", "one-1.34.4, two-24.11.5<", "<dd>the defaults</dd>",
		"40 jobs with 80 tasks, submitted at once or at the times that they name; a trial ends after 60 s at the latest.",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not contain %s", want)
		}
	}
	in.Sweep.Benchmark.Quiet.PSICPU = 1
	if page := render(t, in); !strings.Contains(page, "<dd>the defaults; quiet.psiCpu is 1</dd>") {
		t.Error("a threshold that differs is not on the page")
	}
}
