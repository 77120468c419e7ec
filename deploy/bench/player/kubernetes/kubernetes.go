// Package kubernetes is the player for clusters that modules/kubernetes sets up. It runs kubectl on the first control plane of the hive.
//
// A job of the workload is a Job of Kubernetes, and a task is a pod. The times of events are those at which a watch on the control plane
// received the change of the pod. A pod that ends shortly after its start may have no event start.
package kubernetes

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/nixbench/nixbench/deploy/bench/player"
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/engine/batch"
	kubernetesengine "github.com/nixbench/nixbench/deploy/engine/kubernetes"
)

// namespace contains all objects of the player.
const namespace = "nixbench-bench"

const (
	commandTimeout = time.Minute
	cleanTimeout   = 10 * time.Minute
)

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
}

// New returns the player of a cluster. It runs no command.
func New(c engine.Cluster, o Options) player.Player {
	return &Player{cluster: c, o: o, poll: time.Second, quiet: 30 * time.Second}
}

// run runs a command on the control plane, at most for one minute.
func (p *Player) run(ctx context.Context, stdin io.Reader, argv ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	return p.runLong(ctx, stdin, argv...)
}

// runLong runs a command on the control plane until ctx ends.
func (p *Player) runLong(ctx context.Context, stdin io.Reader, argv ...string) ([]byte, error) {
	node := batch.FirstOf(p.cluster.Members, kubernetesengine.ControlPlane)
	if node == "" {
		return nil, fmt.Errorf("kubernetes: the hive has no node with the role %s", kubernetesengine.ControlPlane)
	}
	return p.cluster.Run(ctx, node, stdin, argv...)
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
	return p.runLong(ctx, bytes.NewReader(stdin), argv...)
}

// Clean implements [player.Player]. It removes the namespace, which contains all objects, and the watch.
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
	return nil
}

// usageScript prints a line for each process of Kubernetes: its name, its file stat, and its resident memory. The kernel cuts names
// to 15 characters.
const usageScript = `for d in /proc/[0-9]*; do
	read -r name 2> /dev/null < "$d/comm" || continue
	case $name in
	kube-scheduler | kube-controller | kube-apiserver | etcd | kubelet | containerd | vc-scheduler | vc-controller-m)
		read -r stat 2> /dev/null < "$d/stat" || continue
		while read -r key kib unit; do
			[ "$key" != VmRSS: ] || printf '%s|%s|%s\n' "$name" "$kib" "$stat"
		done 2> /dev/null < "$d/status" ;;
	esac
done
`

// longNames are the names of programs that the kernel cuts.
var longNames = map[string]string{"kube-controller": "kube-controller-manager", "vc-controller-m": "vc-controller-manager"}

// Usage implements [player.Player]. The usage of a part is the sum over all nodes.
func (p *Player) Usage(ctx context.Context) (map[string]player.Usage, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	outputs := make([][]byte, len(p.cluster.Members))
	var g errgroup.Group
	g.SetLimit(8)
	for i, m := range p.cluster.Members {
		g.Go(func() (err error) {
			outputs[i], err = p.cluster.Run(ctx, m.Node, strings.NewReader(usageScript), "sh", "-s")
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, fmt.Errorf("kubernetes: read the usage: %w", err)
	}
	total := map[string]player.Usage{}
	for i, out := range outputs {
		if err := addUsage(total, string(out)); err != nil {
			return nil, fmt.Errorf("kubernetes: %s: read the usage: %w", p.cluster.Members[i].Node, err)
		}
	}
	return total, nil
}

// addUsage adds the usage in the output of usageScript. The fields of stat after the name in parentheses begin with the third; utime and
// stime are the 14th and 15th, in ticks of 10 ms.
func addUsage(total map[string]player.Usage, out string) error {
	for line := range strings.Lines(out) {
		parts := strings.SplitN(strings.TrimSpace(line), "|", 3)
		if len(parts) != 3 {
			return fmt.Errorf("unexpected line %.100q", line)
		}
		fields := strings.Fields(parts[2][strings.LastIndexByte(parts[2], ')')+1:])
		if len(fields) < 13 {
			return fmt.Errorf("unexpected line %.100q", line)
		}
		user, errUser := strconv.ParseInt(fields[11], 10, 64)
		system, errSystem := strconv.ParseInt(fields[12], 10, 64)
		kib, errMemory := strconv.ParseInt(parts[1], 10, 64)
		if errUser != nil || errSystem != nil || errMemory != nil {
			return fmt.Errorf("unexpected line %.100q", line)
		}
		name := parts[0]
		if long := longNames[name]; long != "" {
			name = long
		}
		total[name] = player.Usage{CPU: total[name].CPU + float64(user+system)/100, Memory: total[name].Memory + kib<<10}
	}
	return nil
}
