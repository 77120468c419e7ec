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
	Static              map[string][]string
	StaticContainers    []string
	StaticConfiguration struct {
		NodeName    []string
		ExtraConfig string
	}
	Starts  struct{ Plain, Tagged string }
	Scripts map[string]string // of slurmd, by membership
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
	Clients     map[string]*string
	Complaints  map[string][]string
	Hollow      struct {
		ExtraConfig string
		Hollow      int
		Ports       [][2]int
	}
	Accounted  map[string][]string
	Accounting struct {
		DbdHost, ExtraConfig, Controller, SharedHost string
		EnsureDatabases, Units, SharedAfter          []string
		EnsureUsers                                  []struct {
			Name              string
			EnsurePermissions map[string]string
		}
		Accounting bool
	}
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

// With a static list, only the system of the controller depends on the number of compute nodes.
func TestStaticSystems(t *testing.T) {
	e := evaluate(t)
	for role, s := range e.Static {
		if changed := s[0] != s[1]; changed != (role == "controller") {
			t.Errorf("%s: the system depends on the number of compute nodes: %v", role, changed)
		}
	}
	want := []string{
		"big CPUs=64 NodeAddr=192.168.222.40",
		"compute-1 CPUs=2 Feature=compute,ssd NodeAddr=192.168.222.20 RealMemory=3776 State=UNKNOWN",
		"compute-2 CPUs=2 Feature=compute,ssd NodeAddr=192.168.222.21 RealMemory=1000 State=UNKNOWN",
	}
	if c := e.StaticConfiguration; !slices.Equal(c.NodeName, want) || strings.Contains(c.ExtraConfig, "MaxNodeCount") || strings.Contains(c.ExtraConfig, "TreeWidth") {
		t.Errorf("nodes %q, want %q; slurm.conf:\n%s", c.NodeName, want, c.ExtraConfig)
	}
	if !strings.Contains(strings.Join(e.StaticContainers, "\n"), "compute-2 CPUs=2 Feature=compute NodeAddr=192.168.222.21 RealMemory=4096 State=UNKNOWN") {
		t.Errorf("containers: %q", e.StaticContainers)
	}
	for membership, script := range e.Scripts {
		dynamic := membership == "dynamic"
		if strings.Contains(script, " -Z ") != dynamic || strings.Contains(script, "Feature=compute") != dynamic {
			t.Errorf("slurmd of a %s node is started by\n%s", membership, script)
		}
	}
	for _, want := range []string{"MaxNodeCount=1024", "TreeWidth=65533"} {
		if !slices.Contains(strings.Split(e.Configuration.ExtraConfig, "\n"), want) {
			t.Errorf("slurm.conf of a cluster with dynamic nodes has no line %q", want)
		}
	}
}

// Only the controller depends on the node with slurmdbd.
func TestAccountingSystems(t *testing.T) {
	e := evaluate(t)
	for role, s := range e.Accounted {
		if changed := s[0] != s[1]; changed != (role == "controller") {
			t.Errorf("%s: the system depends on accounting: %v", role, changed)
		}
	}
	a := e.Accounting
	if a.DbdHost != "accounting-1" || !strings.Contains(a.ExtraConfig, "DbdAddr=192.168.222.11\n") || !slices.Equal(a.EnsureDatabases, []string{"slurm_acct_db"}) ||
		len(a.EnsureUsers) != 1 || a.EnsureUsers[0].Name != "slurm" || a.EnsureUsers[0].EnsurePermissions["slurm_acct_db.*"] != "ALL PRIVILEGES" {
		t.Errorf("%+v", a)
	}
	if want := []string{"munged", "mysql", "slurmdbd"}; !slices.Equal(a.Units, want) {
		t.Errorf("units %q, want %q", a.Units, want)
	}
	for _, want := range []string{"AccountingStorageType=accounting_storage/slurmdbd", "AccountingStorageHost=192.168.222.11"} {
		if !slices.Contains(strings.Split(a.Controller, "\n"), want) {
			t.Errorf("slurm.conf has no line %q:\n%s", want, a.Controller)
		}
	}
	if strings.Contains(e.Configuration.ExtraConfig, "Accounting") {
		t.Errorf("slurm.conf without accounting:\n%s", e.Configuration.ExtraConfig)
	}
	if a.SharedHost != "controller-1" || !slices.Contains(a.SharedAfter, "slurmdbd.service") || !a.Accounting {
		t.Errorf("slurmdbd on the controller: %+v", a)
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
	for role, want := range map[string]string{"accounting": "slurm accounting 0 one by one", "controller": "slurm controller 10 one by one", "compute": "slurm compute 20", "login": "none"} {
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

// Jobs can be submitted from a login node, which is no member.
func TestClients(t *testing.T) {
	clients := evaluate(t).Clients
	for role, want := range map[string]string{"controller": "none", "compute": "none", "login": "slurm"} {
		got := "none"
		if clients[role] != nil {
			got = *clients[role]
		}
		if got != want {
			t.Errorf("%s is a client of %s, want %s", role, got, want)
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

// Each slurmd of a machine with hollow nodes has its own folder, file and port.
func TestHollowConfiguration(t *testing.T) {
	h := evaluate(t).Hollow
	for _, line := range []string{"SlurmdSpoolDir=/var/spool/slurmd/%n\n", "SlurmdPidFile=/run/slurmd-%n.pid\n", "MaxNodeCount=16384\n"} {
		if !strings.Contains(h.ExtraConfig, line) {
			t.Errorf("slurm.conf lacks %q:\n%s", line, h.ExtraConfig)
		}
	}
	if h.Hollow != 30 || !slices.Contains(h.Ports, [2]int{7001, 7030}) {
		t.Errorf("%d hollow nodes, ports %v", h.Hollow, h.Ports)
	}
}

func TestComplaints(t *testing.T) {
	for name, complaints := range evaluate(t).Complaints {
		want := map[string]string{
			"none":             "",
			"static":           "",
			"staticRole":       "nixbench.slurm.membership is static, and nixbench.slurm.staticRoles has no role compute;",
			"staticHollow":     "roles.compute.hollow is 30, and nixbench.slurm.membership is static;",
			"hollowController": "`hollow` is 30 on a node with the role controller, and only a compute node can stand for several nodes;",
			"noStaticNode":     "nixbench.slurm.membership is static, and the facts have no node of the roles in nixbench.slurm.staticRoles;",
			"noController":     "nixbench.slurm.controller is not set and the facts have no node of the role controller;",
			"noAccounting":     "nixbench.slurm.accounting is not set and the facts have no node of the role accounting;",
			"twoDatabases":     "the role accounting has several nodes, and the SLURM modules support one slurmdbd;",
			"twoControllers":   "the role controller has several nodes, and the SLURM modules support one controller;",
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
	missing := map[string]bool{"nixbench-slurmd": true, "nixbench-hollow-slurmd": true, "nixbench-await-slurmdbd": true, "slurmctld-postStart": true, "slurmctld-preStart": true, "slurmdbd-postStart": true}
	for _, path := range strings.Fields(string(paths)) {
		for name := range missing {
			switch {
			case strings.HasSuffix(path, "-unit-script-"+name):
				path = filepath.Join(path, "bin", name)
			case !strings.HasSuffix(path, "-"+name):
				continue
			}
			missing[name] = false
			scripts = append(scripts, path)
			break
		}
	}
	for name, is := range missing {
		if is {
			t.Errorf("the systems have no script %s", name)
		}
	}
	if problems := fixture.Shellcheck(t, "", scripts...); problems != "" {
		t.Errorf("shellcheck:\n%s", problems)
	}
}
