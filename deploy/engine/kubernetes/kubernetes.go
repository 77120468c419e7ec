// Package kubernetes is the engine for clusters that modules/kubernetes sets up. It runs kubectl on a
// control plane over the SSH connection of the deployment, so the credentials of the cluster do not
// leave its nodes.
package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/tidwall/gjson"

	"github.com/nixbench/nixbench/deploy/engine"
)

// Roles of members.
const (
	ControlPlane = "control-plane"
	Worker       = "worker"
)

// drainedAnnotation is the annotation of a node that nixbench has drained. After a killed run, the next
// run uncordons only nodes with this annotation, so that nodes that an administrator has cordoned stay
// cordoned.
const drainedAnnotation = "nixbench.dev/drained"

// cordonedSuffix is the end of the value of drainedAnnotation if the node was already cordoned before
// the drain. Such a node stays cordoned after the run.
const cordonedSuffix = ",cordoned"

const (
	adminConf          = "/etc/kubernetes/admin.conf"
	commandTimeout     = 15 * time.Second
	attemptTimeout     = 10 * time.Second // of kubectl on one control plane, if another one can be tried afterwards
	apiTimeout         = 30 * time.Second // of kubectl on all control planes together
	drainTimeout       = 5 * time.Minute
	resetTimeout       = 2 * time.Minute
	etcdctlTimeout     = 10 * time.Second // of one request
	etcdRemovalTimeout = time.Minute      // of the retries while etcd refuses the removal of a member
	// maxLeaseAge is the maximum age of a working kubelet's lease. A kubelet renews its lease every ten
	// seconds.
	maxLeaseAge = 20 * time.Second
)

// Engine implements [engine.Engine] for a Kubernetes cluster.
type Engine struct {
	engine.Cluster

	mu           sync.Mutex
	lastAnswered string // the control plane on which kubectl succeeded last; see orderControlPlanes
}

// New returns the engine of a cluster. It runs no command.
func New(c engine.Cluster) *Engine { return &Engine{Cluster: c} }

// listNodes returns the Node objects of the cluster, by name, without hollow nodes.
func (e *Engine) listNodes(ctx context.Context) (map[string]gjson.Result, error) {
	items, err := e.listObjects(ctx, "get", "nodes")
	if err != nil {
		return nil, err
	}
	all := map[string]gjson.Result{}
	for _, n := range items {
		if hollowMachine(n) == "" {
			all[nodeName(n)] = n
		}
	}
	return all, nil
}

// Members implements [engine.Engine].
func (e *Engine) Members(ctx context.Context) (map[string]engine.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	nodes, err := e.listNodes(ctx)
	if errors.Is(err, errNoControlPlane) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("kubernetes: %w", err)
	}
	out := map[string]engine.Status{}
	for name, n := range nodes {
		out[name] = engine.Status{
			Ready:    isReady(n),
			Drained:  drainMark(n).Exists(),
			OneByOne: isControlPlane(n),
			Cordoned: n.Get("spec.unschedulable").Bool(),
			Version:  strings.TrimPrefix(n.Get("status.nodeInfo.kubeletVersion").String(), "v"),
		}
	}
	return out, nil
}

func nodeName(n gjson.Result) string { return n.Get("metadata.name").String() }

func isControlPlane(n gjson.Result) bool {
	return n.Get("metadata.labels").Get(gjson.Escape("node-role.kubernetes.io/control-plane")).Exists()
}

func isReady(n gjson.Result) bool {
	return n.Get(`status.conditions.#(type=="Ready").status`).String() == "True"
}
