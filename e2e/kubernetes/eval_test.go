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

// hardened are the settings of a control plane that hardening may change.
type hardened struct {
	APIServer, ControllerManager, Scheduler, Etcd, Volumes, Envs []string
	Kubelet                                                      kubeletHardening
}

type kubeletHardening struct {
	SeccompDefault, EnableProfilingHandler, EnableDebugFlagsHandler, EnableSystemLogHandler bool
	EnableDebuggingHandlers                                                                 *bool
	TLSMinVersion                                                                           string
	TLSCipherSuites                                                                         []string
}

// evaluated is what eval.nix gives.
type evaluated struct {
	Systems []string
	Image   struct {
		Worker       string
		ControlPlane string `json:"control-plane"`
		Units        []string
	}
	Worker       []string
	ControlPlane []string `json:"control-plane"`
	Moved        string
	Cousin       string
	Units        []string
	Checks       []string
	Template     struct {
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
	Hardening struct {
		Default, Older, Off, Theirs hardened
		TheirAudit, Stdout          hardened
		Policies                    []struct {
			Args []string
			Env  string
		}
		Worker kubeletHardening
	}
	Marks struct {
		Systems []string
		Joins   struct{ Token, Config string }
		Engine  struct {
			Keys   map[string]struct{ Path, Text string }
			Engine struct {
				Settings struct {
					JoinConfig string
					Labels     map[string]string
					Taints     []struct{ Key, Effect string }
				}
			}
		}
	}
	Timer string
	Kept  []string
	Token string
	Keyed struct {
		Some, Own struct {
			Envs []struct{ Name, Value string }
			Sum  string
		}
		Workers []string
	}
	Firewall struct {
		ControlPlane []int `json:"control-plane"`
		Flannel      []int
		Routed       []int
	}
	Latency struct {
		Worker bool
		Theirs []string
	}
	Kinds      []string
	Crio       string
	Schedulers struct {
		Images map[string]string
		Config struct {
			Parallelism    int
			LeaderElection struct{ ResourceName string }
			Profiles       []struct {
				SchedulerName string
				Plugins       struct {
					MultiPoint, QueueSort struct{ Enabled, Disabled []struct{ Name string } }
				}
				PluginConfig []struct {
					Name string
					Args struct{ PermitWaitingTimeSeconds int }
				}
			}
		}
		Checks    map[string]struct{ Resource, Namespace, Condition string }
		Manifests []string
		Worker    bool
	}
	Volcano struct {
		Checks, Keys, Authority map[string]string
		Changed                 []bool
		WorkerKeys              []string
	}
	Complaints map[string][]string
}

func evaluate(t *testing.T) evaluated {
	t.Helper()
	nixpkgs := fixture.Nixpkgs(t)
	lib := filepath.Join(nixpkgs, "lib")
	// NIXBENCH_NIXPKGS_LIB can replace the fixture's lib, for example by the one of nixpkgs.
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
			t.Errorf("the closure of %s is not always the same: %v", what, drvs)
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

	for _, unit := range []string{"nixbench-kubernetes", "nixbench-kubernetes-certificates"} {
		if !slices.Contains(e.Units, unit) {
			t.Errorf("a control plane has no unit %s: %v", unit, e.Units)
		}
	}
	// The first check that fails hides the later ones, and nixbench itself removes the cause of this one.
	if got := strings.Join(e.Checks, " "); got != "switchInhibitors zpool zz-nixbench-kubernetes" {
		t.Errorf("the order of the pre-switch checks is %s", got)
	}
	for _, arg := range []string{"v=1", "v=2", "feature-gates=Foo=true", "encryption-provider-config=/etc/kubernetes/pki/nixbench-encryption.json"} {
		if !slices.Contains(e.APIServer, arg) {
			t.Errorf("the API server lacks %s: %v", arg, e.APIServer)
		}
	}
	if e.Latency.Worker {
		t.Error("a worker is given patches for control planes")
	}
	for _, want := range []string{"patches=/theirs", "kube-api-qps=7", "kube-api-burst=200"} {
		if !slices.Contains(e.Latency.Theirs, want) {
			t.Errorf("%s is missing: %v", want, e.Latency.Theirs)
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
	same("a worker with other labels and taints", e.Marks.Systems)
	key := e.Marks.Engine.Keys["kubernetes-registration"]
	if key.Path != "/var/lib/nixbench/kubernetes-registration.json" || key.Text != `{"labels":{"a":"b"},"taints":[{"effect":"NoSchedule","key":"a","value":""}]}` {
		t.Errorf("a node registers with %+v", key)
	}
	// A node that nixbench deploys has no token. It joins with a file that nixbench writes when the node is admitted.
	if joins := e.Marks.Joins; len(e.Marks.Engine.Keys) != 1 || e.Marks.Engine.Engine.Settings.JoinConfig != joins.Config || joins.Token != "" {
		t.Errorf("a worker has the keys %v, and joins with %+v", e.Marks.Engine.Keys, joins)
	}
	if s := e.Marks.Engine.Engine.Settings; len(s.Labels) != 2 || len(s.Taints) != 1 || s.Taints[0].Effect != "NoSchedule" {
		t.Errorf("nixbench knows of %+v", s)
	}
	if e.Timer != "daily" || slices.Contains(e.Kept, "nixbench-kubernetes-certificates") {
		t.Errorf("certificates are renewed %s, and where that is off there are %v", e.Timer, e.Kept)
	}
	if e.Token != "/run/elsewhere/token" {
		t.Errorf("the token is looked for in %s, not where the facts say", e.Token)
	}
	// A control plane restarts its API server when the keys change; a worker's system has no trace of them.
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
	if slices.Contains(e.Firewall.Routed, 8472) {
		t.Errorf("the firewall has the port of a backend that is not used: %v", e.Firewall.Routed)
	}
	slices.Sort(e.Kinds)
	if len(slices.Compact(e.Kinds)) != 3 || e.Crio == "" {
		t.Errorf("pod networks do not differ: %v", e.Kinds)
	}
}

// The defaults of hardening, and the options that switch them off.
func TestHardeningOptions(t *testing.T) {
	h := evaluate(t).Hardening
	want := func(what string, have []string, args ...string) {
		t.Helper()
		for _, arg := range args {
			if !slices.Contains(have, arg) {
				t.Errorf("%s: %s is missing: %v", what, arg, have)
			}
		}
	}
	without := func(what string, have []string, prefixes ...string) {
		t.Helper()
		for _, prefix := range prefixes {
			if i := slices.IndexFunc(have, func(arg string) bool { return strings.HasPrefix(arg, prefix) }); i >= 0 {
				t.Errorf("%s: has %s", what, have[i])
			}
		}
	}
	each := func(c hardened) map[string][]string {
		return map[string][]string{"API server": c.APIServer, "controller manager": c.ControllerManager, "scheduler": c.Scheduler}
	}

	for what, args := range each(h.Default) {
		want(what, args, "profiling=false", "tls-min-version=VersionTLS13")
		without(what, args, "tls-cipher-suites")
	}
	want("API server", h.Default.APIServer, "audit-policy-file=/etc/kubernetes/audit-policy.json", "audit-log-path=/var/log/kubernetes/audit/audit.log",
		"audit-log-maxsize=100", "audit-log-maxbackup=10", "audit-log-maxage=30")
	want("volumes", h.Default.Volumes, "nixbench-audit-policy", "nixbench-audit-log")
	want("etcd", h.Default.Etcd, "tls-min-version=TLS1.3")
	without("etcd", h.Default.Etcd, "cipher-suites")
	for _, k := range []kubeletHardening{h.Default.Kubelet, h.Worker} {
		if !k.SeccompDefault || k.EnableProfilingHandler || k.EnableDebugFlagsHandler || k.EnableSystemLogHandler || k.EnableDebuggingHandlers != nil ||
			k.TLSMinVersion != "VersionTLS13" || len(k.TLSCipherSuites) != 0 {
			t.Errorf("kubelet: %+v", k)
		}
	}

	const strong = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256," +
		"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"
	for what, args := range each(h.Older) {
		want(what+" with TLS 1.2", args, "tls-min-version=VersionTLS12", "tls-cipher-suites="+strong)
	}
	want("etcd with TLS 1.2", h.Older.Etcd, "tls-min-version=TLS1.2", "cipher-suites="+strong)
	if k := h.Older.Kubelet; k.TLSMinVersion != "VersionTLS12" || strings.Join(k.TLSCipherSuites, ",") != strong {
		t.Errorf("kubelet with TLS 1.2: %+v", k)
	}

	for what, args := range each(h.Off) {
		want(what+" without hardening", args, "profiling=true", "tls-min-version=VersionTLS12")
		without(what+" without hardening", args, "audit", "tls-cipher-suites")
	}
	without("volumes without an audit log", h.Off.Volumes, "nixbench-audit")
	without("environment without an audit log", h.Off.Envs, "NIXBENCH_AUDIT")
	if k := h.Off.Kubelet; k.SeccompDefault || !k.EnableProfilingHandler || !k.EnableDebugFlagsHandler || len(k.TLSCipherSuites) != 0 {
		t.Errorf("kubelet without hardening: %+v", k)
	}

	// A hive's setting for one program overrides the default.
	want("a hive's own", h.Theirs.APIServer, "profiling=true", "audit-log-maxsize=7", "audit-log-maxage=3", "tls-min-version=VersionTLS12")
	want("a hive's own", h.Theirs.Scheduler, "profiling=false")
	if k := h.Theirs.Kubelet; k.SeccompDefault || k.TLSMinVersion != "VersionTLS13" {
		t.Errorf("a hive's own kubelet: %+v", k)
	}
	want("a hive's own audit log", h.TheirAudit.APIServer, "audit-policy-file=/etc/kubernetes/theirs.yaml", "audit-log-path=/var/log/theirs.log")
	want("volumes of a hive's own audit log", h.TheirAudit.Volumes, "audit-policy", "audit-log")
	without("volumes of a hive's own audit log", h.TheirAudit.Volumes, "nixbench-audit")
	without("environment of a hive's own audit log", h.TheirAudit.Envs, "NIXBENCH_AUDIT")
	want("an audit log on stdout", h.Stdout.APIServer, "audit-policy-file=/etc/kubernetes/audit-policy.json", "audit-log-path=-")
	want("volumes of an audit log on stdout", h.Stdout.Volumes, "nixbench-audit-policy")
	without("volumes of an audit log on stdout", h.Stdout.Volumes, "nixbench-audit-log")

	a, b := h.Policies[0], h.Policies[1]
	if !slices.Equal(a.Args, b.Args) || a.Env == b.Env || len(a.Env) != 64 {
		t.Errorf("two audit policies: %+v and %+v, want the same arguments and another reason to restart", a, b)
	}
}

// The settings of further schedulers are merged with the defaults, and the engine checks their Deployments.
func TestFurtherSchedulers(t *testing.T) {
	s := evaluate(t).Schedulers
	if got, want := s.Images["gangs"]+" "+s.Images["plain"], "registry.k8s.io/scheduler-plugins/kube-scheduler:v0.34.7 registry.k8s.io/kube-scheduler:v1.34.4"; got != want {
		t.Errorf("the images are %s, want %s", got, want)
	}
	if len(s.Config.Profiles) != 1 || s.Config.Parallelism != 4 || s.Config.LeaderElection.ResourceName != "gangs" {
		t.Fatalf("the configuration is %+v", s.Config)
	}
	p := s.Config.Profiles[0]
	if got := fmt.Sprintf("%s %v %v %v", p.SchedulerName, p.Plugins.MultiPoint.Enabled, p.Plugins.QueueSort, p.PluginConfig); got != "gangs [{Coscheduling} {Theirs}] {[{Coscheduling}] [{*}]} [{Coscheduling {20}}]" {
		t.Errorf("the profile is %s", got)
	}
	if got := fmt.Sprint(s.Checks); got != "map[scheduler-gangs:{deployment.apps/gangs kube-system Available} scheduler-plain:{deployment.apps/plain kube-system Available}]" {
		t.Errorf("the checks are %s", got)
	}
	if !slices.Contains(s.Manifests, "schedulers.json") {
		t.Errorf("the manifests are %v", s.Manifests)
	}
	if !s.Worker {
		t.Error("schedulers change the system of a worker")
	}
}

// Volcano has an authority of its own, on control planes only, and checks for its programs and its queue.
func TestVolcanoSystems(t *testing.T) {
	v := evaluate(t).Volcano
	if got, want := fmt.Sprint(v.Keys), "map[volcano-ca-crt:/var/lib/nixbench/secrets/volcano-ca.crt ca certificate volcano-ca-key:/var/lib/nixbench/secrets/volcano-ca.key ca key]"; got != want {
		t.Errorf("the keys are %s, want %s", got, want)
	}
	if got, want := fmt.Sprint(v.Authority), "map[CA_CERT:/var/lib/nixbench/secrets/volcano-ca.crt CA_KEY:/run/keys/volcano-ca.key]"; got != want {
		t.Errorf("the paths of the authority are %s, want %s", got, want)
	}
	if len(v.Checks) != 4 || v.Checks["volcano-queue"] != "queue.scheduling.volcano.sh/default" {
		t.Errorf("the checks are %v", v.Checks)
	}
	if !slices.Equal(v.Changed, []bool{true, false}) {
		t.Errorf("another authority changes control planes and workers: %v", v.Changed)
	}
	if strings.Contains(strings.Join(v.WorkerKeys, " "), "volcano") {
		t.Errorf("a worker has the keys %v", v.WorkerKeys)
	}
}

// Each failed assertion names the option and the remedy.
func TestAssertions(t *testing.T) {
	e := evaluate(t)
	want := map[string][]string{
		"none":          nil,
		"fewer":         nil,
		"fine":          nil,
		"overlap":       {"nixbench.kubernetes.podCidr", "nixbench.kubernetes.serviceCidr", "another network"},
		"small":         {"nixbench.kubernetes.podCidr (10.244.0.0/20) is too small", "Make podCidr a /17", "maxPods"},
		"wide":          {"nixbench.kubernetes.nodeCidr", "make it a /20", "flannel"},
		"label":         {"nixbench.kubernetes.nodeLabels", "node-role.kubernetes.io/worker", "domain of your own"},
		"reserved":      {"nixbench.kubernetes.nodeLabels has kubernetes.io/hostname", "remove it"},
		"granted":       nil,
		"key":           {`nixbench.kubernetes.nodeLabels has "-a"`, "at most 63"},
		"domain":        {`nixbench.kubernetes.nodeLabels has "Example.org/a/b"`, "a domain and a /"},
		"value":         {`nixbench.kubernetes.nodeLabels."a" has an invalid value`, "begins and ends"},
		"taint":         {`nixbench.kubernetes.nodeTaints has "a=b,c"`, "the rules for labels"},
		"condition":     {`nixbench.kubernetes.nodeTaints has "node.kubernetes.io/not-ready"`, "domain of your own"},
		"twice":         {`nixbench.kubernetes.nodeTaints has "a:NoSchedule" more than once`, "only one taint"},
		"effects":       nil,
		"rotation":      {"nixbench.kubernetes.settings.kubelet.rotateCertificates is off", "renew = false"},
		"byHand":        nil,
		"early":         {"nixbench.kubernetes.certificates.renewBefore (365 days)", "lower it"},
		"short":         {"nixbench.kubernetes.certificates.renewBefore (60 days)", "certificateValidityPeriod"},
		"old":           {"nixbench.kubernetes.version is 1.30.2", "newer nixbench.kubernetes.package"},
		"other":         {"nixbench.kubernetes.version (1.33.1)", "leave the version out"},
		"suites":        {"nixbench.kubernetes.tls.cipherSuites has no effect", `minVersion = "1.2"`},
		"older":         nil,
		"etcdSuites":    {"nixbench.kubernetes.etcd.extraArgs", `tls-min-version = "TLS1.2"`},
		"etcdTLS":       {"etcd does not start"},
		"etcdOlder":     nil,
		"logQuery":      {"enableSystemLogQuery needs enableSystemLogHandler", "enableSystemLogHandler = true"},
		"logHandler":    nil,
		"audit":         {"nixbench.kubernetes.audit.policy", "rules = ["},
		"ports":         {"nixbench.kubernetes.nodePorts.from", "exchange them"},
		"scheduler":     {"nixbench.kubernetes.schedulers.default-scheduler", "neither default-scheduler"},
		"schedulerName": {"nixbench.kubernetes.schedulers.Gangs", "use lowercase letters"},
		"endpoint":      {"nixbench.kubernetes.endpoint.address is not set", "set it to", "nixbench.kubernetes.caHash is not set"},
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
