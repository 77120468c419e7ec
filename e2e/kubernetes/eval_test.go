package kubernetes

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

// evaluated is what eval.nix gives.
type evaluated struct {
	Image struct {
		Worker       string
		ControlPlane string `json:"control-plane"`
		Units        []string
	}
	Worker       []string
	ControlPlane []string `json:"control-plane"`
	Moved        string
	Cousin       string
	Units        []string
	Template     struct {
		Init struct {
			NodeRegistration struct {
				Taints *[]any
			}
		}
		Kubelet struct {
			MaxPods      int
			ClusterDNS   []string
			FeatureGates map[string]bool
		}
		Cluster struct {
			ControlPlaneEndpoint string
			KubernetesVersion    string
			APIServer            struct {
				ExtraVolumes []struct{ Name string }
			}
		}
	}
	APIServer []string
	Token     string
	Keyed     struct {
		Some, Own struct {
			Envs []struct{ Name, Value string }
			Sum  string
		}
		Workers []string
	}
	Firewall struct {
		ControlPlane []int `json:"control-plane"`
		Flannel      []int
	}
	Kinds      []string
	Crio       string
	Complaints map[string][]string
}

func evaluate(t *testing.T) evaluated {
	t.Helper()
	nixpkgs := fixture.Nixpkgs(t)
	lib := filepath.Join(nixpkgs, "lib")
	// Another lib than the fixture's, such as the real one.
	if other := os.Getenv("NIXBENCH_NIXPKGS_LIB"); other != "" {
		lib = other
	}
	file, err := filepath.Abs("eval.nix")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("nix", "eval", "--json", "--impure", "--expr",
		fmt.Sprintf("import %s { nixpkgs = %s; lib = import %s; }", file, nixpkgs, lib))
	cmd.Env = append(os.Environ(), "NIX_CONFIG="+fixture.NixConfig)
	var diag strings.Builder
	cmd.Stderr = &diag
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("nix eval: %v\n%s", err, diag.String())
	}
	var e evaluated
	if err := json.Unmarshal(out, &e); err != nil {
		t.Fatal(err)
	}
	return e
}

func TestEvaluation(t *testing.T) {
	e := evaluate(t)
	same := func(what string, drvs []string) {
		t.Helper()
		if len(slices.Compact(slices.Clone(drvs))) != 1 {
			t.Errorf("the closure of %s changes with the number of workers: %v", what, drvs)
		}
	}

	if e.Image.Worker == "" || e.Image.ControlPlane == "" || len(e.Image.Units) != 0 {
		t.Errorf("without facts: %+v, want systems without units that join", e.Image)
	}
	same("workers", e.Worker)
	same("control planes", e.ControlPlane)
	if e.Moved == e.Worker[0] {
		t.Error("another endpoint changes nothing, so the comparisons show nothing")
	}
	if e.Cousin != e.Worker[0] {
		t.Error("arguments of the API server change the closure of workers")
	}

	for _, unit := range []string{"nixbench-kubernetes", "nixbench-kubernetes-token"} {
		if !slices.Contains(e.Units, unit) {
			t.Errorf("a control plane has no unit %s: %v", unit, e.Units)
		}
	}
	for _, arg := range []string{"v=1", "v=2", "profiling=false", "feature-gates=Foo=true", "encryption-provider-config=/etc/kubernetes/pki/nixbench-encryption.json"} {
		if !slices.Contains(e.APIServer, arg) {
			t.Errorf("the API server lacks %s: %v", arg, e.APIServer)
		}
	}
	k := e.Template.Kubelet
	if k.MaxPods != 60 || !slices.Equal(k.ClusterDNS, []string{"10.96.0.10"}) || !k.FeatureGates["Foo"] {
		t.Errorf("kubelet: %+v", k)
	}
	c := e.Template.Cluster
	if c.ControlPlaneEndpoint != "192.168.222.10:6443" || c.KubernetesVersion != "v1.34.4" || len(c.APIServer.ExtraVolumes) != 2 {
		t.Errorf("cluster: %+v", c)
	}
	// kubeadm tells "no taints" from "the usual ones" by this list being there.
	if taints := e.Template.Init.NodeRegistration.Taints; taints == nil || len(*taints) != 0 {
		t.Errorf("taints: %v, want an empty list", taints)
	}
	if e.Token != "/run/elsewhere/token" {
		t.Errorf("the token is looked for in %s, not where the facts say", e.Token)
	}
	// Other keys are a reason for a control plane to restart its server; workers do not care.
	const sum = "a6b46dd0d1ae5e86cbc8f37e75ceeb6760230c1ca4ffbcb0c97b96dd7d9c464b" // of "some"
	if some, own := e.Keyed.Some, e.Keyed.Own; some.Sum != sum || len(some.Envs) != 1 || some.Envs[0].Value != sum || own.Sum != "" || len(own.Envs) != 0 {
		t.Errorf("keys of encryption: %+v", e.Keyed)
	}
	same("workers with other keys of control planes", e.Keyed.Workers)
	for _, port := range []int{6443, 2379, 10250, 30000} {
		if !slices.Contains(e.Firewall.ControlPlane, port) {
			t.Errorf("the firewall lacks %d: %v", port, e.Firewall.ControlPlane)
		}
	}
	if !slices.Contains(e.Firewall.Flannel, 8472) {
		t.Errorf("the firewall lacks flannel's port: %v", e.Firewall.Flannel)
	}
	slices.Sort(e.Kinds)
	if len(slices.Compact(e.Kinds)) != 3 || e.Crio == "" {
		t.Errorf("pod networks do not differ: %v", e.Kinds)
	}
}

// Each complaint names the option and what to do.
func TestAssertions(t *testing.T) {
	e := evaluate(t)
	want := map[string][]string{
		"none":     nil,
		"fewer":    nil,
		"fine":     nil,
		"overlap":  {"nixbench.kubernetes.podCidr", "nixbench.kubernetes.serviceCidr", "another network"},
		"small":    {"nixbench.kubernetes.podCidr (10.244.0.0/20) is too small", "Make podCidr a /17", "maxPods"},
		"wide":     {"nixbench.kubernetes.nodeCidr", "make it a /20", "flannel"},
		"calico":   {"nixbench.kubernetes.cni.calico.manifest", "pkgs.fetchurl"},
		"label":    {"nixbench.kubernetes.nodeLabels", "node-role.kubernetes.io/worker", "domain of your own"},
		"old":      {"nixbench.kubernetes.version is 1.30.2", "newer nixbench.kubernetes.package"},
		"other":    {"nixbench.kubernetes.version (1.33.1)", "leave the version out"},
		"audit":    {"nixbench.kubernetes.audit.policy", "rules = ["},
		"ports":    {"nixbench.kubernetes.nodePorts.from", "exchange them"},
		"endpoint": {"nixbench.kubernetes.endpoint.address is not set", "set it to", "nixbench.kubernetes.caHash is not set"},
	}
	for name, parts := range want {
		got := strings.Join(e.Complaints[name], "\n")
		if len(parts) == 0 && got != "" {
			t.Errorf("%s: %s, want no complaint", name, got)
		}
		for _, part := range parts {
			if !strings.Contains(got, part) {
				t.Errorf("%s: %q lacks %q", name, got, part)
			}
		}
	}
}
