// Package kubernetes is the player for clusters that modules/kubernetes sets up. It runs kubectl on the first control plane of the hive.
//
// A job of the workload is a Job of Kubernetes, and a task is a pod. The times of events are those at which a watch on the control plane
// received the change of the pod. A pod that ends shortly after its start may have no event start.
//
// A job that is the only one of its kubectl create command is submitted when the command starts. kubectl creates the jobs of a command one after
// the other and prints no times, so a job of several has the latest possible time: when its first pod was created, or else when the command ended.
package kubernetes

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/bench/player"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/engine/batch"
	kubernetesengine "github.com/nixbench/nixbench/deploy/engine/kubernetes"
)

// namespace contains all objects of the player.
const namespace = "nixbench-bench"

const cleanTimeout = 10 * time.Minute

// Gangs of Options: how a scheduler starts the tasks of a job with Gang together.
const (
	Coscheduling = "coscheduling" // by a PodGroup of scheduler-plugins
	Volcano      = "volcano"      // by a PodGroup of Volcano
)

// Options are the properties of the pods.
type Options struct {
	Image     string
	Command   []string // the command of a task; {runtime} is replaced by the seconds that it runs
	Scheduler string   // the name of the scheduler; empty: the default scheduler
	Gangs     string   // Coscheduling or Volcano; empty: the tasks of a gang are placed like other tasks
}

// Player implements [player.Player].
type Player struct {
	cluster engine.Cluster
	o       Options
	poll    time.Duration // time between two reads of the watch
	quiet   time.Duration // time without events after which the player looks for missing ones
	doubts  []string      // about the last Play
	clocks  player.Clocks // of the last Play
}

// New returns the player of a cluster. It runs no command.
func New(c engine.Cluster, o Options) player.Player {
	return &Player{cluster: c, o: o, poll: time.Second, quiet: 30 * time.Second}
}

// Doubts implements [player.Doubter].
func (p *Player) Doubts() []string { return p.doubts }

// Clocks implements [player.Clocked].
func (p *Player) Clocks() player.Clocks { return p.clocks }

// date reads the clock of the control plane.
func (p *Player) date(ctx context.Context) ([]byte, error) { return p.run(ctx, nil, "date", "+%s%N") }

// controlPlane runs commands on the first control plane.
func (p *Player) controlPlane() player.Shell {
	node := batch.FirstOf(p.cluster.Members, kubernetesengine.ControlPlane)
	return player.Shell{RunOn: p.cluster.Run, Node: node, Engine: "kubernetes", Role: kubernetesengine.ControlPlane}
}

// run runs a command on the control plane, at most for one minute.
func (p *Player) run(ctx context.Context, stdin io.Reader, argv ...string) ([]byte, error) {
	return p.controlPlane().Run(ctx, stdin, argv...)
}

// kubectl returns the command line of kubectl with the API server of the node on which it runs.
func (p *Player) kubectl(args ...string) ([]string, error) {
	settings := struct {
		Port int `json:"port"`
	}{6443}
	for _, m := range p.cluster.Members {
		if m.Role == kubernetesengine.ControlPlane && len(m.Settings) > 0 {
			if err := json.Unmarshal(m.Settings, &settings); err != nil {
				return nil, fmt.Errorf("%s: deployment.engine.settings: %w", m.Node, err)
			}
			break
		}
	}
	return append([]string{"kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf", fmt.Sprintf("--server=https://127.0.0.1:%d", settings.Port),
		"--tls-server-name=kubernetes"}, args...), nil
}

// runKubectl runs kubectl on the control plane.
func (p *Player) runKubectl(ctx context.Context, stdin []byte, args ...string) ([]byte, error) {
	argv, err := p.kubectl(args...)
	if err != nil {
		return nil, err
	}
	return p.controlPlane().RunLong(ctx, bytes.NewReader(stdin), argv...)
}

// Clean implements [player.Player]. It removes the namespace, which contains all objects, and the watch, and compacts etcd.
func (p *Player) Clean(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, cleanTimeout, fmt.Errorf("the namespace %s still exists after %v", namespace, cleanTimeout))
	defer cancel()
	if _, err := p.run(ctx, strings.NewReader(stopScript), "sh", "-s"); err != nil {
		return fmt.Errorf("kubernetes: stop the watch: %w", err)
	}
	_, err := p.runKubectl(ctx, nil, "delete", "namespace", namespace, "--ignore-not-found", "--wait=true")
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return fmt.Errorf("kubernetes: delete the namespace %s: %w", namespace, err)
	}
	return p.compact(ctx)
}

// programs are the programs of Kubernetes, and of schedulers beside the default one.
var programs = []string{"kube-scheduler", "kube-controller-manager", "kube-apiserver", "etcd", "kubelet", "containerd", "vc-scheduler", "vc-controller-manager"}

// Usage implements [player.Player]. The usage of a part is the sum over all nodes.
func (p *Player) Usage(ctx context.Context) (map[string]player.Usage, error) {
	var nodes []string
	for _, m := range p.cluster.Members {
		nodes = append(nodes, m.Node)
	}
	usage, err := player.ReadUsage(ctx, p.cluster.Run, nodes, programs)
	if err != nil {
		return nil, fmt.Errorf("kubernetes: read the usage: %w", err)
	}
	return usage, nil
}
