package deploy

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nixbench/nixbench/e2e/lab"
)

// A no-op apply to ten machines needs one login per node, and few processes. The test logs how
// long each apply takes.
func TestTenMachines(t *testing.T) {
	t.Parallel()
	const n = 10
	s := newSandbox(t, lab.Start(t, n))
	hive := func(text string) {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "  m%d = which \"%s\";\n", i+1, text)
		}
		s.writeHive(b.String())
	}
	// Wrappers of Nix programs and ssh record each call.
	wrappers, count := t.TempDir(), filepath.Join(t.TempDir(), "count")
	for _, name := range []string{"nix", "nix-daemon", "nix-store", "nix-instantiate", "nix-build", "nix-env", "nix-copy-closure", "ssh"} {
		real, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		script := fmt.Sprintf("#!/bin/sh\necho \"%s $1\" >>%s\nexec %s \"$@\"\n", name, count, real)
		if err := os.WriteFile(filepath.Join(wrappers, name), []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	s.env = append(s.env, "PATH="+wrappers+":"+os.Getenv("PATH"))
	counted := func() []string {
		text, _ := os.ReadFile(count)
		os.Remove(count)
		return slices.DeleteFunc(strings.Split(strings.TrimSpace(string(text)), "\n"), func(s string) bool { return s == "" })
	}

	hive("one")
	got := s.run(0, "apply", "-v")
	s.says(got, "10 switched", "m1> copying path '/nix/store/", "m10> copying path '/nix/store/")
	ran := counted()
	t.Logf("the first apply: %v, processes: %d", got.took, len(ran))
	started := func(what string) int {
		return len(slices.DeleteFunc(slices.Clone(ran), func(s string) bool { return s != what }))
	}
	// Each batch of builds, at most one per evaluating process, reads the local store once. One of the evaluations is the survey.
	if reads, most := started("nix-daemon --stdio"), started("nix eval")-1; started("nix copy") > 0 || reads < 1 || reads > most {
		t.Errorf("the copies to ten nodes started nix copy %d times, and read the local store %d times, want at most %d", started("nix copy"), reads, most)
	}
	before := s.countLogins("m7")
	quickest := s.run(0, "apply")
	s.says(quickest, "10 unchanged")
	if got := s.countLogins("m7") - before - 1; got != 1 {
		t.Errorf("%d logins", got)
	}
	ran = counted()
	t.Logf("no-op: %v; %d processes: %s", quickest.took, len(ran), strings.Join(ran, ", "))
	nix := slices.DeleteFunc(slices.Clone(ran), func(s string) bool { return strings.HasPrefix(s, "ssh ") })
	if len(nix) > 9 {
		t.Errorf("a no-op started %d Nix processes, want at most 9", len(nix))
	}
	for _, h := range s.findEvents(func(h runEvent) bool { return h.Phase == "copy" || h.Phase == "activate" || h.Phase == "keys" }) {
		t.Errorf("event of a no-op: %v", h)
	}
	for range 2 {
		if got := s.run(0, "apply"); got.took < quickest.took {
			quickest = got
		}
	}
	var report struct {
		Report struct {
			Total    float64
			Other    float64
			Critical []struct {
				Phase string
				Took  float64
			}
		} `json:"result"`
	}
	out := strings.TrimSpace(s.run(0, "explain", "--json").out)
	if err := json.Unmarshal([]byte(out[strings.LastIndexByte(out, '\n')+1:]), &report); err != nil || len(report.Report.Critical) == 0 {
		t.Errorf("%v\n%s", err, out)
	}
	t.Logf("the fastest no-op: %v; the last one: %+v", quickest.took, report.Report)

	hive("two")
	got = s.run(0, "apply")
	t.Logf("ten switches: %v, processes: %d", got.took, len(counted()))
	s.checkNothingLeft("m1", "m10")
}
