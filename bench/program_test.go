package bench

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// player of a workload: it finishes the jobs in the file, or two of its own, and stores what it sees of its environment.
const playScript = `#!/bin/bash
jobs=$(sed 's/^{"id":"\([^"]*\)".*/\1/' "$NIXBENCH_JOBS" 2>/dev/null)
echo "$1|$NIXBENCH_CELL|$(nixbench exec true)|$PWD" > "$NIXBENCH_TRIAL/seen"
ls "$NIXBENCH_SOURCE" >> "$NIXBENCH_TRIAL/seen" 2>&1
echo '{"event": "begin"}'
read -r _
for id in ${jobs:-own-1 own-2}; do
	for event in submit created bound start finish; do
		echo "{\"event\": \"$event\", \"id\": \"$id\", \"time\": ${EPOCHREALTIME/./}}"
	done
done
`

// writeProgram writes an executable file.
func writeProgram(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "play.sh")
	if err := os.WriteFile(file, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return file
}

// programBenchmark returns a benchmark with a program, with jobs or without.
func programBenchmark(file string, jobs ...json.RawMessage) Benchmark {
	return Benchmark{
		Factors: map[string][]string{"workload": {"own"}}, Repetitions: 2, Reset: "clean", Order: "blocks", Cells: []map[string]string{{"workload": "own"}},
		Workloads: map[string]WorkloadOptions{"own": {Program: []string{file, "argument"}, Jobs: jobs, TimeLimit: 20}},
	}
}

// The program plays the workload, on new machines each time. It is frozen: later changes of the file do not reach the sweep.
func TestProgram(t *testing.T) {
	for _, test := range []struct {
		jobs []json.RawMessage
		want string
	}{{nil, "own-1 own-2"}, {[]json.RawMessage{[]byte(`{"id":"x"}`), []byte(`{"id":"y","after":["x"]}`)}, "x y"}} {
		file := writeProgram(t, playScript)
		b := programBenchmark(file, test.jobs...)
		c := &fakeCluster{command: []string{"echo", "with space"}}
		r := newRunner(t, b, c)
		source := filepath.Join(r.Store.Folder, "source")
		if err := os.Mkdir(source, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(source, "helper.txt"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("#!/bin/sh\nexit 1\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := r.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		for number := 1; number <= 2; number++ {
			a, err := firstResult(r.Store, number)
			if err != nil || a == nil {
				all, _ := r.Store.Attempts(number)
				t.Fatalf("%v %+v", err, all)
			}
			if a.Result.Finished != 2 || !a.Result.Complete || a.Result.Metrics["throughput"] <= 0 {
				t.Errorf("%+v", a.Result)
			}
			if _, has := a.Result.Metrics["utilisation"]; has != (test.jobs != nil) {
				t.Errorf("utilisation is known: %v", has)
			}
			events, err := readEvents(r.Store, *a)
			if err != nil || len(events) != 10 || events[0].Job != strings.Fields(test.want)[0] {
				t.Errorf("%v, %+v", err, events)
			}
			folder := r.Store.attemptFolder(number, 1)
			seen, err := os.ReadFile(filepath.Join(folder, "seen"))
			if want := "argument|workload=own|with space exec true|" + filepath.Join(folder, ".nixbench") + "\nhelper.txt\n"; string(seen) != want || err != nil {
				t.Errorf("the program has seen %q, want %q (%v)", seen, want, err)
			}
		}
		if c.removed != 2 {
			t.Errorf("the machines were removed %d times: what the program has created may remain", c.removed)
		}
	}
}

// A program that fails during the workload is a result, with the place of the mistake.
func TestProgramFails(t *testing.T) {
	b := programBenchmark(writeProgram(t, "#!/bin/sh\necho '{\"event\": \"begin\"}'\necho hello\n"))
	r := newRunner(t, b, &fakeCluster{})
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	all, err := r.Store.Attempts(1)
	if err != nil || len(all) != 1 || all[0].State != Suspect || all[0].Result.Complete || !strings.Contains(all[0].Reasons[0], "play: workloads.own.program (play.sh): line 2 of its output, hello: ") {
		t.Errorf("%v, %+v", err, all)
	}
}

// The example in docs/bench.md plays a workload. Its commands do nothing here.
func TestDocumentedProgram(t *testing.T) {
	doc, err := os.ReadFile("../docs/bench.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(doc), "```bash\n")
	text, _, ok := strings.Cut(rest, "```\n")
	if !ok {
		t.Fatal("docs/bench.md has no program")
	}
	for command, finished := range map[string]int{"true": 3, "false": 0} {
		b := programBenchmark(writeProgram(t, text))
		b.Workloads["own"].Program[1] = "3"
		r := newRunner(t, b, &fakeCluster{command: []string{command}})
		if err := r.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		a, err := firstResult(r.Store, 1)
		if err != nil || a == nil || a.Result.Finished != finished || a.Result.Failed != 3-finished {
			t.Errorf("%v, %+v", err, a)
		}
	}
}

// The content and the arguments are part of the sweep's identity; the folder of the program is not.
func TestProgramIdentity(t *testing.T) {
	b := programBenchmark(writeProgram(t, playScript))
	r := newRunner(t, b, &fakeCluster{})
	continues := func(b Benchmark) bool {
		own, err := DescribeWorkload("own", b.Workloads["own"], nil)
		return err == nil && r.Store.Sweep.IsOf(b, map[string]Workload{"own": own}, nil)
	}
	if !continues(b) || !continues(programBenchmark(writeProgram(t, playScript))) {
		t.Error("the same program is another one")
	}
	other := programBenchmark(writeProgram(t, playScript+"\n"))
	moreArguments := programBenchmark(writeProgram(t, playScript))
	w := moreArguments.Workloads["own"]
	w.Program = append(slices.Clone(w.Program), "")
	moreArguments.Workloads["own"] = w
	missing := programBenchmark("/no/such/play.sh")
	for name, b := range map[string]Benchmark{"other content": other, "more arguments": moreArguments, "no file": missing, "no program": benchmark()} {
		if continues(b) {
			t.Errorf("%s: the sweep continues", name)
		}
	}
	first, second := r.Store.Sweep, r.Store.Sweep
	second.Workloads = map[string]Workload{"own": {Hash: first.Workloads["own"].Hash, Program: "sha256:other"}}
	if d := Compare(first, second); len(d) != 1 || d[0].What != "the program of the workload own" {
		t.Errorf("%+v", d)
	}
}

func TestUnusableProgram(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"play.sh":           `workloads.w.program: "play.sh" is no path`,
		folder:              "not a regular file",
		file:                file + " is not executable; run: chmod +x " + file,
		"/no/such/play.sh":  "no such file",
		"":                  `"" is no path`,
		folder + "/missing": "no such file",
	} {
		if _, err := DescribeWorkload("w", WorkloadOptions{Program: []string{path}}, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
	for _, w := range []WorkloadOptions{{}, {Program: []string{writeProgram(t, playScript)}}, {Program: []string{"/nix/store/x/bin/play"}, ProgramInputs: []string{"/nix/store/x.drv"}}} {
		if _, err := DescribeWorkload("w", w, nil); err != nil {
			t.Error(err)
		}
	}
}
