package slurm

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nixbench/nixbench/e2e/fixture"
)

// evaluated is what eval.nix returns.
type evaluated struct {
	Systems       []string
	Scaled        map[string][]string
	Image         []string
	Configuration struct {
		ClusterName   string
		PartitionName []string
		ExtraConfig   string
	}
	Starts  struct{ Plain, Tagged string }
	Engines map[string]*struct {
		Kind, Role string
		OneByOne   bool
		Order      int
		Settings   struct {
			DrainTimeout int
			Features     []string
			Version      string
		}
	}
	EngineFiles map[string]*string
	Complaints  map[string][]string
}

func evaluate(t *testing.T) (e evaluated) {
	t.Helper()
	cmd := exec.Command("nix-instantiate", "--eval", "--read-write-mode", "--strict", "--json", "--arg", "nixpkgs", fixture.Nixpkgs(t), "eval.nix")
	if err := json.Unmarshal(runNix(t, cmd), &e); err != nil {
		t.Fatal(err)
	}
	return e
}

func runNix(t *testing.T, cmd *exec.Cmd) []byte {
	t.Helper()
	cmd.Env = append(os.Environ(), "NIX_CONFIG="+fixture.NixConfig)
	var diag strings.Builder
	cmd.Stderr = &diag
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, diag.String())
	}
	return out
}

// No system depends on the number of compute nodes, and all depend on the address of the controller.
func TestSystemsDoNotDependOnScale(t *testing.T) {
	for role, s := range evaluate(t).Scaled {
		if s[0] != s[1] || s[1] != s[2] {
			t.Errorf("%s: the system depends on the number of compute nodes: %q", role, s[:3])
		}
		if s[3] == s[0] {
			t.Errorf("%s: the system does not depend on the address of the controller", role)
		}
	}
}

// slurm.conf has the settings of several modules: a list is merged, another value replaces the default.
func TestConfiguration(t *testing.T) {
	e := evaluate(t)
	c := e.Configuration
	if want := []string{"compute MaxTime=INFINITE Nodes=compute State=UP", "main Default=YES MaxTime=01:00:00 Nodes=ALL State=UP"}; !slices.Equal(c.PartitionName, want) {
		t.Errorf("partitions %q, want %q", c.PartitionName, want)
	}
	for _, want := range []string{"SlurmctldHost=controller-1(192.168.222.10)", "NodeSet=compute Feature=compute", "ReturnToService=1", "DisableRootJobs=NO",
		"LaunchParameters=use_interactive_step", "TaskPlugin=task/cgroup,task/affinity"} {
		if !slices.Contains(strings.Split(c.ExtraConfig, "\n"), want) {
			t.Errorf("slurm.conf has no line %q:\n%s", want, c.ExtraConfig)
		}
	}
	if !strings.Contains(c.ExtraConfig, "SlurmctldParameters=enable_configless,idle_on_node_suspend\n") && !strings.Contains(c.ExtraConfig, "SlurmctldParameters=idle_on_node_suspend,enable_configless\n") {
		t.Errorf("the lists are not merged:\n%s", c.ExtraConfig)
	}
	if c.ClusterName != "demo-1" {
		t.Errorf("the cluster's name is %s", c.ClusterName)
	}
	if len(e.Image) > 0 {
		t.Errorf("a system without facts has %q", e.Image)
	}
	if e.Starts.Plain == e.Starts.Tagged {
		t.Error("tags do not change how slurmd registers")
	}
	for role, want := range map[string]string{"controller": "slurm controller 10 one by one", "compute": "slurm compute 20", "login": "none"} {
		got := "none"
		if engine := e.Engines[role]; engine != nil {
			got = fmt.Sprintf("%s %s %d", engine.Kind, engine.Role, engine.Order)
			if engine.OneByOne {
				got += " one by one"
			}
			if s := engine.Settings; s.DrainTimeout != 300 || !slices.Equal(s.Features, []string{"ssd"}) || s.Version != "24.11.5" {
				t.Errorf("%s: %+v", role, s)
			}
		}
		if got != want {
			t.Errorf("%s: the engine is %q, want %q", role, got, want)
		}
	}
}

// The systems of members name their engine in a file.
func TestEngineFiles(t *testing.T) {
	files := evaluate(t).EngineFiles
	for role, want := range map[string]string{"controller": "slurm\n", "compute": "slurm\n", "login": "no file"} {
		got := "no file"
		if files[role] != nil {
			got = *files[role]
		}
		if got != want {
			t.Errorf("%s: %q, want %q", role, got, want)
		}
	}
}

func TestComplaints(t *testing.T) {
	for name, complaints := range evaluate(t).Complaints {
		want := map[string]string{
			"none":           "",
			"noController":   "nixbench.slurm.controller is not set and the facts have no node of the role controller;",
			"twoControllers": "the role controller has several nodes, and the SLURM modules support one controller;",
		}[name]
		if got := strings.Join(complaints, "\n"); !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// shellcheck has no complaint about the scripts of the modules, as they are built.
func TestShellcheck(t *testing.T) {
	systems := evaluate(t).Systems
	paths := runNix(t, exec.Command("nix-store", append([]string{"--realise"}, systems...)...))
	paths = runNix(t, exec.Command("nix-store", append([]string{"--query", "--requisites"}, strings.Fields(string(paths))...)...))
	var scripts []string
	for _, path := range strings.Fields(string(paths)) {
		switch {
		case strings.HasSuffix(path, "-nixbench-slurmd"):
			scripts = append(scripts, path)
		case strings.HasSuffix(path, "-unit-script-slurmctld-postStart"):
			scripts = append(scripts, filepath.Join(path, "bin/slurmctld-postStart"))
		}
	}
	if len(scripts) != 2 {
		t.Fatalf("the systems have the scripts %q", scripts)
	}
	if problems := fixture.Shellcheck(t, "", scripts...); problems != "" {
		t.Errorf("shellcheck:\n%s", problems)
	}
}
