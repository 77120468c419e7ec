package kubernetes

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/nixbench/nixbench/bench/player"
	kubernetesengine "github.com/nixbench/nixbench/deploy/engine/kubernetes"
	"github.com/nixbench/nixbench/nixeval"
)

// flag is a flag of a static pod that limits how fast jobs run, with its default.
type flag struct {
	name, byDefault string
	kind            string // the kind of events, such as Bound, whose rate the flag limits
}

// schedulerFlags and controllerFlags are flags that limit the requests of kube-scheduler and kube-controller-manager per second.
// kube-scheduler binds each pod with one request; it sends events with another client. In kube-controller-manager, each
// controller has a client with this limit. The controller of Jobs creates pods, updates the status of Jobs, removes finalizers of
// pods and sends events, so it creates fewer pods per second than the limit.
var (
	schedulerFlags  = []flag{{"kube-api-qps", "50", player.Bound}, {"kube-api-burst", "100", ""}}
	controllerFlags = []flag{{"kube-api-qps", "20", player.Created}, {"kube-api-burst", "30", ""}, {"concurrent-job-syncs", "5", ""}}
	// serverFlags are two flags of the API server. The sum of their values is how many requests the API server answers at the
	// same time. It shares this number between its clients.
	serverFlags = []flag{{"max-requests-inflight", "400", ""}, {"max-mutating-requests-inflight", "200", ""}}
)

// Limits implements [player.Player]. It reads the limits of the scheduler that places the workload's pods, if this scheduler is
// kube-scheduler or one of nixbench.kubernetes.schedulers.
func (p *Player) Limits(ctx context.Context) ([]player.Limit, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*player.CommandTimeout)
	defer cancel()
	scheduler, err := p.schedulerLimits(ctx)
	if err != nil {
		return nil, fmt.Errorf("kubernetes: read the limits of the scheduler: %w", err)
	}
	controllers, err := p.readManifest(ctx, "kube-controller-manager")
	if err != nil {
		return nil, fmt.Errorf("kubernetes: %w", err)
	}
	server, err := p.readManifest(ctx, "kube-apiserver")
	if err != nil {
		return nil, fmt.Errorf("kubernetes: %w", err)
	}
	// The first limit is that of the player itself: a kubectl command sends one request after the other. The rate limit of
	// client-go does not apply, because kubectl has a new client for each object.
	limits := slices.Concat([]player.Limit{{Name: "nixbench: kubectl create commands at the same time", Value: strconv.Itoa(maxCreates)}}, scheduler,
		flagLimits("kube-controller-manager", controllers, controllerFlags), flagLimits("kube-apiserver", server, serverFlags))
	if p.objects.hollow {
		config, err := p.readConfigMap(ctx, "kwok", "kwok.yaml")
		if err != nil {
			return nil, fmt.Errorf("kubernetes: read the configuration of kwok: %w", err)
		}
		limits = append(limits, newLimit("kwok: podPlayStageParallelism", findSetting(config, "podPlayStageParallelism"), "unknown", ""))
	}
	pods, err := p.readMaxPods(ctx)
	if err != nil {
		return nil, fmt.Errorf("kubernetes: list the nodes: %w", err)
	}
	return append(limits, pods), nil
}

// schedulerLimits returns the limits of the scheduler that places the workload's pods. modules/kubernetes/schedulers.nix writes the
// configuration of a scheduler that is not kube-scheduler to a ConfigMap.
func (p *Player) schedulerLimits(ctx context.Context) ([]player.Limit, error) {
	if name := p.objects.Scheduler; name != "" && name != "default-scheduler" {
		config, err := p.readConfigMap(ctx, name, "config.json")
		if err != nil || len(config) == 0 {
			return nil, err
		}
		return configLimits(name, config), nil
	}
	manifest, err := p.readManifest(ctx, "kube-scheduler")
	if file := manifest["config"]; file != "" { // kube-scheduler then ignores the flags
		config, err := p.readFile(ctx, file)
		return append([]player.Limit{{Name: "kube-scheduler: config", Value: file}}, configLimits("kube-scheduler", config)...), err
	}
	return append(flagLimits("kube-scheduler", manifest, schedulerFlags), newLimit("kube-scheduler: parallelism", "", parallelism, "")), err
}

// readConfigMap returns an entry of a ConfigMap in the namespace kube-system. It is empty if it does not exist.
func (p *Player) readConfigMap(ctx context.Context, name, entry string) ([]byte, error) {
	return p.runAdmin(ctx, nil, "get", "configmap", name, "--namespace=kube-system", "--ignore-not-found",
		"--output=jsonpath={.data."+strings.ReplaceAll(entry, ".", `\.`)+"}")
}

func configLimits(program string, config []byte) []player.Limit {
	return []player.Limit{
		newLimit(program+": clientConnection.qps", findSetting(config, "qps"), "50", player.Bound),
		newLimit(program+": clientConnection.burst", findSetting(config, "burst"), "100", ""),
		newLimit(program+": parallelism", findSetting(config, "parallelism"), parallelism, ""),
	}
}

func (p *Player) readManifest(ctx context.Context, name string) (map[string]string, error) {
	out, err := p.readFile(ctx, "/etc/kubernetes/manifests/"+name+".yaml")
	if err != nil {
		return nil, fmt.Errorf("read the flags of %s: %w", name, err)
	}
	flags := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if m := flagLine.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
			flags[m[1]] = m[2]
		}
	}
	return flags, nil
}

func (p *Player) readFile(ctx context.Context, file string) ([]byte, error) {
	return p.RunOn(ctx, p.Place().Scheduler, nil, "cat", file)
}

// flagLine matches an argument in the manifests that kubeadm writes.
var flagLine = regexp.MustCompile(`^- ['"]?--([a-z0-9-]+)=(.*?)['"]?$`)

// flagLimits returns the limits that the flags of a static pod set.
func flagLimits(program string, manifest map[string]string, flags []flag) []player.Limit {
	var limits []player.Limit
	for _, f := range flags {
		limits = append(limits, newLimit(program+": "+f.name, manifest[f.name], f.byDefault, f.kind))
	}
	return limits
}

// newLimit returns a limit with value, or with byDefault if value is empty. If kind is set, the value is a rate of events of this
// kind; a negative rate means no limit.
func newLimit(name, value, byDefault, kind string) player.Limit {
	l := player.NewLimit(name, value, byDefault)
	if rate, err := strconv.ParseFloat(cmp.Or(value, byDefault), 64); err == nil && rate > 0 && kind != "" {
		l.Rate, l.Kind = rate, kind
	}
	return l
}

// parallelism is the default number of goroutines with which kube-scheduler tests nodes for a pod. No command-line flag sets this number.
const parallelism = "16"

// settingLine matches a setting with a number in a configuration of kube-scheduler or kwok, in YAML or JSON.
var settingLine = regexp.MustCompile(`(?:^|[\s{,"])(qps|burst|parallelism|podPlayStageParallelism)"?:\s*(-?[0-9.]+)`)

func findSetting(config []byte, name string) string {
	for _, m := range settingLine.FindAllSubmatch(config, -1) {
		if string(m[1]) == name {
			return string(m[2])
		}
	}
	return ""
}

// readMaxPods returns how many pods each node can run. The result does not contain the number of nodes, because nixbench compares
// limits between configurations with different numbers of nodes.
func (p *Player) readMaxPods(ctx context.Context) (player.Limit, error) {
	selector := "!" + kubernetesengine.HollowLabel
	if p.objects.hollow {
		selector = kubernetesengine.HollowLabel
	}
	out, err := p.runAdmin(ctx, nil, "get", "nodes", "--selector="+selector, "--field-selector=spec.unschedulable=false",
		"--output=jsonpath={.items[*].status.allocatable.pods}")
	numbers := strings.Fields(string(out))
	slices.SortFunc(numbers, nixeval.CompareNatural)
	return player.Limit{Name: "kubelet: maxPods", Value: cmp.Or(strings.Join(slices.Compact(numbers), " and "), "0") + " per node"}, err
}
