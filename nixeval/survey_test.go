package nixeval

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nixbench/nixbench/e2e/fixture"
	"github.com/nixbench/nixbench/nixeval/workload"
)

var surveyRE = regexp.MustCompile(`h\.survey (?:(\d+)\)|\(builtins\.fromJSON "(\[[^]]*\])"\))`)

// A survey of many units runs several processes. Each unit is evaluated once, and no process evaluates more units than
// its memory is planned for.
func TestSurveyInChunks(t *testing.T) {
	all := names(100)
	var mu sync.Mutex
	evaluations := map[string]int{}
	var chunks []int
	run := func(_ context.Context, c Command) ([]byte, error) {
		m := surveyRE.FindStringSubmatch(strings.Join(c.Argv, " "))
		if m == nil {
			return nil, errors.New("no test expected this command")
		}
		var units []string
		if m[2] != "" {
			if err := json.Unmarshal([]byte(strings.ReplaceAll(m[2], `\"`, `"`)), &units); err != nil {
				return nil, err
			}
		} else {
			var first int
			_, _ = fmt.Sscan(m[1], &first)
			units = all[:first]
		}
		mu.Lock()
		defer mu.Unlock()
		chunks = append(chunks, len(units))
		deployments := map[string]any{}
		for _, u := range units {
			evaluations[u]++
			deployments[u] = map[string]any{"targetHost": u}
		}
		return json.Marshal(map[string]any{"named": all, "units": all, "deployments": deployments})
	}
	hive, err := New(Options{Source: Source{File: "/hive.nix"}, Run: run}).Survey(t.Context())
	if err != nil || len(hive.Units) != len(all) || len(hive.Broken) > 0 {
		t.Fatalf("%+v, %v", hive, err)
	}
	for _, u := range hive.Units {
		if !slices.Equal(u.Deployment.TargetHosts, TargetHosts{u.Name}) || evaluations[u.Name] != 1 {
			t.Errorf("%s was evaluated %d times: %+v", u.Name, evaluations[u.Name], u.Deployment.TargetHosts)
		}
	}
	if chunks[0] != firstSurvey || slices.Max(chunks) > workload.Survey.MaxChunk {
		t.Errorf("units per process: %v", chunks)
	}
}

// The real Nix evaluates all units, also those after the first ones, and reports the broken ones.
func TestSurveyOfManyNodes(t *testing.T) {
	fixture.Require(t, "nix")
	for _, c := range []struct {
		broken string // nodes with an error
		want   []string
	}{{"[ ]", nil}, {`[ "n11" ]`, []string{"n11"}}, {`[ "n01" "n10" ]`, []string{"n01", "n10"}}} {
		dir := t.TempDir()
		text := fmt.Sprintf(`let names = builtins.genList (i: "n${if i < 10 then "0" else ""}${toString i}") 12; in
builtins.listToAttrs (map (name: {
  inherit name;
  value.deployment.targetHost = if builtins.elem name %s then throw "broken" else "${name}.example.org";
}) names) // { meta.nixpkgs = import %s { }; }`, c.broken, fixture.Nixpkgs(t))
		if err := os.WriteFile(filepath.Join(dir, "hive.nix"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		hive, err := New(Options{Source: Source{File: filepath.Join(dir, "hive.nix"), Dir: dir}}).Survey(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, u := range hive.Units {
			if broken := hive.Broken[u.Name] != nil; broken != slices.Contains(c.want, u.Name) {
				t.Errorf("broken %s: %s: %v", c.broken, u.Name, hive.Broken[u.Name])
			} else if !broken && !slices.Equal(u.Deployment.TargetHosts, TargetHosts{u.Name + ".example.org"}) {
				t.Errorf("broken %s: %s: %+v", c.broken, u.Name, u.Deployment.TargetHosts)
			}
		}
	}
}

// With a specialisation, the survey reads its deployment options: its engine, and its keys in addition to those of the system. The file of the engine is
// part of the specialisation.
func TestSurveyOfSpecialisation(t *testing.T) {
	fixture.Require(t, "nix")
	t.Setenv("NIX_CONFIG", fixture.NixConfig)
	dir := t.TempDir()
	text := `{
  meta.nixpkgs = import ` + fixture.Nixpkgs(t) + ` { system = "x86_64-linux"; };
  a = {
    deployment.engine = { kind = "kubernetes"; role = "worker"; };
    deployment.keys.token = { text = "only-for-tests"; };
    specialisation.slurm.configuration = { lib, ... }: {
      deployment.engine = lib.mkForce { kind = "slurm"; role = "compute"; order = 20; };
      deployment.keys = lib.mkForce { munge.text = "only-for-tests"; };
    };
  };
  b.deployment.engine = { kind = "kubernetes"; role = "worker"; };
}`
	if err := os.WriteFile(filepath.Join(dir, "hive.nix"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for specialisation, want := range map[string]string{"": "kubernetes kubernetes", "slurm": "slurm kubernetes"} {
		e := New(Options{Source: Source{File: filepath.Join(dir, "hive.nix"), Dir: dir}, Specialisation: specialisation})
		hive, err := e.Survey(t.Context())
		if err != nil || len(hive.Broken) > 0 {
			t.Fatalf("%v, %v", hive, err)
		}
		if got := hive.Unit("a").Deployment.Engine.Kind + " " + hive.Unit("b").Deployment.Engine.Kind; got != want {
			t.Errorf("specialisation %q: %s, want %s", specialisation, got, want)
		}
		if keys := len(hive.Unit("a").Deployment.Keys); (keys == 2) != (specialisation == "slurm") {
			t.Errorf("specialisation %q: %d keys", specialisation, keys)
		}
	}
}
