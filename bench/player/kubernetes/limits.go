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

// setting limits how fast jobs run. Its name is that of a flag in the manifest of a static pod, or of an entry in a configuration.
type setting struct {
	name, byDefault string
	kind            string // the kind of events, such as Bound, whose rate the setting limits
}

// schedulerFlags and controllerFlags are flags that limit the requests of kube-scheduler and kube-controller-manager per second.
// kube-scheduler binds each pod with one request; it sends events with another client. In kube-controller-manager, each
// controller has a client with this limit. The controller of Jobs creates pods, updates the status of Jobs, removes finalizers of
// pods and sends events, so it creates fewer pods per second than the limit.
var (
	schedulerFlags  = []setting{{"kube-api-qps", "50", player.Bound}, {"kube-api-burst", "100", ""}, parallelism}
	schedulerConfig = []setting{{"clientConnection.qps", "50", player.Bound}, {"clientConnection.burst", "100", ""}, parallelism}
	controllerFlags = []setting{{"kube-api-qps", "20", player.Created}, {"kube-api-burst", "30", ""}, {"concurrent-job-syncs", "5", ""}}
	// serverFlags are two flags of the API server. The sum of their values is how many requests the API server answers at the
	// same time. It shares this number between its clients.
	serverFlags = []setting{{"max-requests-inflight", "400", ""}, {"max-mutating-requests-inflight", "200", ""}}
	kwokConfig  = []setting{{"podPlayStageParallelism", "unknown", ""}}
	// parallelism is the number of goroutines with which kube-scheduler tests nodes for a pod. No command-line flag sets this number. It is
	// in schedulerFlags, too, so that its default is shown.
	parallelism = setting{"parallelism", "16", ""}
)

// Limits implements [player.Player]. It reads the limits of the scheduler that places the workload's pods, if this scheduler is
// kube-scheduler or one of nixbench.kubernetes.schedulers.
func (p *Player) Limits(ctx context.Context) ([]player.Limit, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*player.CommandTimeout)
	defer cancel()
	scheduler, errScheduler := p.schedulerLimits(ctx)
	controllers, errControllers := p.readManifest(ctx, "kube-controller-manager")
	server, errServer := p.readManifest(ctx, "kube-apiserver")
	pods, errPods := p.readMaxPods(ctx)
	if err := cmp.Or(errScheduler, errControllers, errServer, errPods); err != nil {
		return nil, fmt.Errorf("kubernetes: read the limits: %w", err)
	}
	// The first limit is that of the player itself: a kubectl command sends one request after the other. The rate limit of
	// client-go does not apply, because kubectl has a new client for each object.
	limits := slices.Concat([]player.Limit{{Name: "nixbench: kubectl create commands at the same time", Value: strconv.Itoa(maxCreates)}}, scheduler,
		limitsIn(controllers, "kube-controller-manager", controllerFlags), limitsIn(server, "kube-apiserver", serverFlags))
	if p.objects.hollow {
		config, err := p.readConfigMap(ctx, "kwok", "kwok.yaml")
		if err != nil {
			return nil, fmt.Errorf("kubernetes: read the configuration of kwok: %w", err)
		}
		limits = append(limits, limitsIn(config, "kwok", kwokConfig)...)
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
		return limitsIn(config, name, schedulerConfig), nil
	}
	manifest, err := p.readManifest(ctx, "kube-scheduler")
	if file := findSetting(manifest, "config"); file != "" { // kube-scheduler then ignores the flags
		config, err := p.readFile(ctx, file)
		return append([]player.Limit{{Name: "kube-scheduler: config", Value: file}}, limitsIn(config, "kube-scheduler", schedulerConfig)...), err
	}
	return limitsIn(manifest, "kube-scheduler", schedulerFlags), err
}

// readConfigMap returns an entry of a ConfigMap in the namespace kube-system. It is empty if it does not exist.
func (p *Player) readConfigMap(ctx context.Context, name, entry string) ([]byte, error) {
	return p.runAdmin(ctx, nil, "get", "configmap", name, "--namespace=kube-system", "--ignore-not-found",
		"--output=jsonpath={.data."+strings.ReplaceAll(entry, ".", `\.`)+"}")
}

func (p *Player) readManifest(ctx context.Context, name string) ([]byte, error) {
	return p.readFile(ctx, "/etc/kubernetes/manifests/"+name+".yaml")
}

func (p *Player) readFile(ctx context.Context, file string) ([]byte, error) {
	return p.RunOn(ctx, p.Place().Scheduler, nil, "cat", file)
}

// limitsIn returns the limits that a manifest or a configuration of a program sets. In text, it looks for the part of a setting's name
// after the last dot. If a setting has a kind, its value is a rate of events of this kind; a negative rate means no limit.
func limitsIn(text []byte, program string, settings []setting) []player.Limit {
	var limits []player.Limit
	for _, s := range settings {
		value := findSetting(text, s.name[strings.LastIndex(s.name, ".")+1:])
		l := player.NewLimit(program+": "+s.name, value, s.byDefault)
		if rate, err := strconv.ParseFloat(cmp.Or(value, s.byDefault), 64); err == nil && rate > 0 && s.kind != "" {
			l.Rate, l.Kind = rate, s.kind
		}
		limits = append(limits, l)
	}
	return limits
}

// findSetting returns the value of a flag in a manifest that kubeadm has written, or of an entry in a configuration in YAML or JSON.
func findSetting(text []byte, name string) string {
	form := regexp.MustCompile(`(?m)(?:^\s*- ['"]?--` + name + `=|(?:^|[\s{,"])` + name + `"?:\s*)([^\s'",}]+)`)
	if m := form.FindSubmatch(text); m != nil {
		return string(m[1])
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
