package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// quickSeeds are the seeds that every end-to-end test runs.
var quickSeeds = []uint64{3, 7, 8, 9, 11, 34, 61}

var shared = sync.OnceValues(assemble)

func TestMain(m *testing.M) {
	machines := os.Getenv("NIXBENCH_E2E") == "1"
	if machines {
		if err := isolateMounts(); err != nil {
			panic(err)
		}
	}
	code := m.Run()
	if machines {
		k, _ := shared()
		k.remove()
	}
	os.Exit(code)
}

func needKit(t *testing.T) *kit {
	t.Helper()
	if os.Getenv("NIXBENCH_E2E") != "1" {
		t.Skip("NIXBENCH_E2E=1 is not set; needs root and the lab")
	}
	k, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// logs returns a folder for logs, which is kept if the test fails.
func logs(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(os.Getenv("NIXBENCH_E2E_LOGS"), "nixbench-faults-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !t.Failed() {
			_ = os.RemoveAll(dir)
		}
	})
	return dir
}

// A few seeds with short runs, which cover all operations and seven faults.
func TestSeeds(t *testing.T) {
	k, dir := needKit(t), logs(t)
	for _, seed := range quickSeeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			r := k.seed(t.Context(), choose(seed), dir)
			t.Log(r.line())
			if r.verdict() == failed {
				t.Errorf("seed %d; its log is in %s; again: go run ./e2e/faults -seed %d", seed, dir, seed)
			}
		})
	}
}

// A run that does not converge, an object that is left, and a secret that leaks are reported: here the fault
// is not healed, and the test adds an object and a secret.
func TestProblemsAreReported(t *testing.T) {
	k := needKit(t)
	operation := func(name string) operation {
		return operations[slices.IndexFunc(operations, func(o operation) bool { return o.name == name })]
	}
	addNetwork := func(xml string) func(*sandbox) error {
		return func(s *sandbox) error {
			file := s.dir + "/network.xml"
			if err := os.WriteFile(file, []byte(xml), 0o600); err != nil {
				return err
			}
			s.output = append(s.output, "the key is "+s.token)
			return s.command(s.lab.Command(t.Context(), "virsh", "-q", "-c", s.lab.URIs["lxc"], "net-define", file))
		}
	}
	for name, one := range map[string]struct {
		c        choice
		sabotage func(*sandbox) error
		want     []string
	}{
		"unhealed": {
			choice{operation: operation("change"), fault: find(t, "link cut for good"), phase: "survey", victim: "w-2"},
			func(*sandbox) error { return nil },
			[]string{"next apply: exit code 6: w-2"},
		},
		"added": {
			choice{operation: operation("first apply"), fault: find(t, "SIGTERM"), phase: "provision", victim: "w-1", delay: 100 * time.Millisecond},
			addNetwork("<network><name>stray</name></network>"),
			[]string{"secrets: deployment.keys.token is in output", "after destroy: there is still network stray"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log strings.Builder
			s, err := newSandbox(k, fmt.Sprintf("/tmp/nixbench-lab/faults-%d-%s", os.Getpid(), name), &log)
			defer func() {
				if err := s.close(); err != nil {
					t.Error(err)
				}
			}()
			if err != nil {
				t.Fatal(err)
			}
			r := s.try(t.Context(), one.c, one.sabotage)
			t.Log(r.line())
			if r.verdict() != failed {
				t.Errorf("the verdict is %s\n%s", r.verdict(), log.String())
			}
			for _, want := range one.want {
				if !slices.ContainsFunc(r.problems, func(p string) bool { return strings.HasPrefix(p, want) }) {
					t.Errorf("%q is not reported, but %q\n%s", want, r.problems, log.String())
				}
			}
		})
	}
}
