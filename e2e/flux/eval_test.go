package flux

import (
	"encoding/json"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"testing"

	"github.com/nixbench/nixbench/e2e/fixture"
)

// evaluated is what eval.nix returns.
type evaluated struct {
	Scaled, Changed map[string][]string
	Image           bool
	Settings        map[string]any
	Keys            map[string]string
	Engines         map[string]struct {
		Kind, Role string
		OneByOne   bool
		Settings   struct {
			DrainTimeout int
			Version      string
		}
	}
	Complaints map[string][]string
}

func evaluate(t *testing.T) (e evaluated) {
	t.Helper()
	cmd := exec.Command("nix-instantiate", "--eval", "--read-write-mode", "--strict", "--json", "--arg", "nixpkgs", fixture.Nixpkgs(t), "eval.nix")
	cmd.Env = append(os.Environ(), "NIX_CONFIG="+fixture.NixConfig)
	var diag strings.Builder
	cmd.Stderr = &diag
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, diag.String())
	}
	if err := json.Unmarshal(out, &e); err != nil {
		t.Fatal(err)
	}
	return e
}

// No system depends on the number of compute nodes within the capacity. All systems depend on what all brokers must agree
// on.
func TestSystems(t *testing.T) {
	e := evaluate(t)
	for role, s := range e.Scaled {
		if s[0] != s[1] || s[1] != s[2] {
			t.Errorf("%s: the system depends on the number of compute nodes: %q", role, s)
		}
		for i, what := range []string{"capacity", "address of the leader", "certificate"} {
			if e.Changed[role][i] == s[0] {
				t.Errorf("%s: the system does not depend on the %s", role, what)
			}
		}
	}
	if e.Image {
		t.Error("a system without facts runs a broker")
	}
	for role, want := range map[string]bool{"leader": true, "compute": false} {
		got := e.Engines[role]
		if got.Kind != "flux" || got.Role != role || got.OneByOne != want || got.Settings.DrainTimeout != 300 || got.Settings.Version != "0.88.0" {
			t.Errorf("%s: %+v", role, got)
		}
		if got, want := e.Keys[role], "flux 0400 /var/lib/nixbench/secrets/flux-curve.cert curve key"; got != want {
			t.Errorf("%s: key %q, want %q", role, got, want)
		}
	}
}

// The configuration has the hosts and the resources, and settings of several modules are merged.
func TestConfiguration(t *testing.T) {
	var want map[string]any
	err := json.Unmarshal([]byte(`{
		"access": {"allow-root-owner": true},
		"bootstrap": {
			"curve_cert": "/var/lib/nixbench/secrets/flux-curve.cert",
			"hosts": [
				{"host": "leader-1", "bind": "tcp://*:8050", "connect": "tcp://192.168.222.10:8050"},
				{"host": "compute-[1-16]"}, {"host": "gpu-1"}]},
		"job-manager": {"inactive-age-limit": "7d"},
		"resource": {
			"config": [
				{"hosts": "leader-1", "cores": "0"},
				{"hosts": "compute-[1-16]", "cores": "0-1", "properties": ["compute"]},
				{"hosts": "gpu-1", "cores": "0", "gpus": "0-3", "properties": ["a100"]}],
			"exclude": "leader-1"},
		"tbon": {"tcp_user_timeout": "5s"}}`), &want)
	if err != nil {
		t.Fatal(err)
	}
	if got := evaluate(t).Settings; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestComplaints(t *testing.T) {
	for name, complaints := range evaluate(t).Complaints {
		want := map[string]string{
			"none":       "",
			"noLeader":   "nixbench.flux.leader is not set and the facts have no node of the role leader;",
			"twoLeaders": "the role leader has several nodes, and a Flux instance has one leader;",
			"noCores":    "nixbench.flux.computeRoles.gpu.cores is not set, and the facts have no node of the role gpu with vcpus;",
			"full":       "the role compute has more nodes than nixbench.flux.computeRoles.compute.capacity;",
			"hollow":     "`hollow` of the role is 100, and Flux has no hollow nodes;",
		}[name]
		if got := strings.Join(complaints, "\n"); !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
