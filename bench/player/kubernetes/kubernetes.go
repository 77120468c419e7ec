// Package kubernetes is the player for clusters that modules/kubernetes sets up. It runs kubectl on the first control plane of the hive, or on a
// client of the cluster.
//
// A job of the workload is a Job of Kubernetes, or an index of an Indexed Job, and a task is a pod. kubectl watches the pods on the node that submits jobs. The
// time of an event is when this watch received the change of the pod, except for the first and the last instruction of a task, which the
// task prints. A pod that ends shortly after its start may have no event launched.
//
// If a kubectl create command creates only one job, the job counts as submitted when the command starts. If it creates several,
// kubectl creates one job after the other and prints no times. Each of these jobs then has the latest possible time: when its
// first pod was created, or, if it has no pod, when the command ended.
package kubernetes

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/deploy/engine"
	kubernetesengine "github.com/nixbench/nixbench/deploy/engine/kubernetes"
)

// namespace contains all objects of the player.
const namespace = "nixbench-bench"

const cleanTimeout = 10 * time.Minute

// The values of Options.Gangs: how a scheduler starts the tasks of a gang together.
const (
	Coscheduling = "coscheduling" // by a PodGroup of scheduler-plugins
	Volcano      = "volcano"      // by a PodGroup of Volcano; the name is also that of Volcano's scheduler
)

// Options are the properties of the pods that run the tasks.
type Options struct {
	Image     string
	Command   []string // command of a task, in which {runtime} and {job} are replaced; empty: a script that stamps its first and last instruction
	Scheduler string   // schedulerName of the pods; empty: the default scheduler, or volcano if Gangs is Volcano
	Gangs     string   // Coscheduling or Volcano; empty: the tasks of a gang are placed like other tasks
	Arrays    bool     `json:"-"` // equal jobs with one task that are due together are one Indexed Job
}

type Player struct {
	player.Remote
	engine  *kubernetesengine.Engine
	objects objects
	watch   player.Tail[change] // the kubectl command that watches the pods on the node that submits jobs
}

// New returns the player for a Kubernetes cluster. It submits and watches jobs on the node client, or on the first control plane
// if client is empty. It runs no command.
func New(c engine.Cluster, client string, o Options) player.Player {
	if o.Gangs == Volcano && o.Scheduler == "" {
		o.Scheduler = Volcano
	}
	p := &Player{
		Remote:  player.Remote{Cluster: c, Engine: "kubernetes", Role: kubernetesengine.ControlPlane, Client: client, Programs: programs},
		engine:  kubernetesengine.New(c),
		objects: objects{o, hasHollow(c.Members)},
		watch:   player.Tail[change]{Unit: watchUnit, What: "kubernetes: read the watch", Parse: parseChange, Poll: time.Second, Quiet: 30 * time.Second},
	}
	p.watch.Run = p.Run
	return p
}

// admin returns the command line of kubectl, with the arguments args, for the API server of the control plane on which it runs.
func (p *Player) admin(args ...string) []string {
	server, _ := p.engine.Arguments() // cannot fail: Nix has written the settings
	return slices.Concat([]string{"kubectl", "--kubeconfig", kubernetesengine.AdminConf}, server, args)
}

func (p *Player) runAdmin(ctx context.Context, stdin []byte, args ...string) ([]byte, error) {
	return p.RunLong(ctx, p.Place().Scheduler, bytes.NewReader(stdin), p.admin(args...)...)
}

// ensure creates objects with kubectl create. Objects that exist are no error.
func (p *Player) ensure(ctx context.Context, objects []byte, args ...string) error {
	_, err := p.runAdmin(ctx, objects, append([]string{"create"}, args...)...)
	if err != nil && strings.Contains(err.Error(), "(AlreadyExists)") {
		return nil
	}
	return err
}

// kubectl returns the command line of kubectl, with the arguments args, on the node that submits jobs.
func (p *Player) kubectl(args ...string) []string {
	if p.Client == "" {
		return p.admin(args...)
	}
	return append([]string{"kubectl", "--kubeconfig", accessFile}, args...)
}

// Clean implements [player.Player]. It removes the watch, the kubeconfig on a client, and the namespace, which contains all
// objects of the player.
func (p *Player) Clean(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, cleanTimeout, fmt.Errorf("the namespace %s still exists after %v", namespace, cleanTimeout))
	defer cancel()
	if _, err := p.watch.RunScript(ctx, p.watch.StopScript()+"rm -rf "+accessFolder+"\n"); err != nil {
		return fmt.Errorf("kubernetes: stop the watch: %w", err)
	}
	_, err := p.runAdmin(ctx, nil, "delete", "namespace", namespace, "--ignore-not-found", "--wait=true")
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return fmt.Errorf("kubernetes: delete the namespace %s: %w", namespace, err)
	}
	return nil
}

// programs are the names of the processes of Kubernetes, and of schedulers that run beside the default scheduler. The cgroup of a container
// runtime also contains the programs that start containers, but not the containers.
var programs = []string{"kube-scheduler", "kube-controller-manager", "kube-apiserver", "etcd", "kubelet", "containerd", "crio",
	"kube-proxy", "kwok", "vc-scheduler", "vc-controller-manager", "vc-webhook-manager"}
