// Package kubernetes is the engine of clusters that modules/kubernetes sets up. It asks
// the cluster by kubectl on a control plane, over the connection that is there anyway, so
// no credentials of the cluster leave its nodes.
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

// Kind is what deployment.engine.kind is for nodes of ours.
const Kind = "kubernetes"

// Roles of members.
const (
	ControlPlane = "control-plane"
	Worker       = "worker"
)

// left marks a node that we drained, so that a run which follows a killed one knows which
// nodes to give work back to, and never uncordons one that somebody else has cordoned.
const left = "nixbench.dev/drained"

const (
	admin        = "/etc/kubernetes/admin.conf"
	askTimeout   = 15 * time.Second
	drainTimeout = 5 * time.Minute
	resetTimeout = 2 * time.Minute
	readyTimeout = 5 * time.Minute
	poll         = 500 * time.Millisecond
)

// Engine is a Kubernetes cluster.
type Engine struct {
	engine.Cluster

	renewing sync.Mutex
	renewed  bool // the join token, for this run
}

// New prepares an engine; nothing is asked yet.
func New(c engine.Cluster) *Engine { return &Engine{Cluster: c} }

func (e *Engine) controlPlanes() []string {
	var out []string
	for _, m := range e.Cluster.Members {
		if m.Role == ControlPlane {
			out = append(out, m.Node)
		}
	}
	return out
}

// errNone says that no control plane has been set up yet.
var errNone = errors.New("no control plane is set up yet")

// kubectl runs on the first control plane that can: one that answers us, and whose API
// server answers it.
func (e *Engine) kubectl(ctx context.Context, stdin string, args ...string) ([]byte, error) {
	var errs []error
	none := true
	for _, node := range e.controlPlanes() {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		out, err := e.kubectlOn(ctx, node, stdin, args...)
		if err == nil || refused(err) {
			return out, err
		}
		if !strings.Contains(err.Error(), admin+": no such file") {
			none = false
			errs = append(errs, err)
		}
	}
	if none {
		return nil, errNone
	}
	return nil, errors.Join(errs...)
}

func (e *Engine) kubectlOn(ctx context.Context, node, stdin string, args ...string) ([]byte, error) {
	s, err := e.settings()
	if err != nil {
		return nil, err
	}
	// The node's own server: admin.conf names the endpoint, which may be a node that is gone.
	argv := append([]string{"kubectl", "--kubeconfig", admin, "--request-timeout=" + askTimeout.String(),
		fmt.Sprintf("--server=https://127.0.0.1:%d", s.Port), "--tls-server-name=kubernetes"}, args...)
	return e.Run(ctx, node, strings.NewReader(stdin), argv...)
}

// refused tells an answer of the API from not reaching it: another control plane
// would say the same.
func refused(err error) bool {
	return strings.Contains(err.Error(), "Error from server")
}

func notFound(err error) bool {
	return err != nil && strings.Contains(err.Error(), "(NotFound)")
}

// nodes are what the cluster knows, as kubectl prints it.
func (e *Engine) nodes(ctx context.Context) (map[string]gjson.Result, error) {
	out, err := e.kubectl(ctx, "", "get", "nodes", "-o", "json")
	if err != nil {
		return nil, err
	}
	if !gjson.ValidBytes(out) {
		return nil, fmt.Errorf("kubectl get nodes printed no JSON")
	}
	all := map[string]gjson.Result{}
	for _, n := range gjson.GetBytes(out, "items").Array() {
		all[n.Get("metadata.name").String()] = n
	}
	return all, nil
}

// Members implements [engine.Engine].
func (e *Engine) Members(ctx context.Context) (map[string]engine.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*askTimeout)
	defer cancel()
	nodes, err := e.nodes(ctx)
	if errors.Is(err, errNone) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("kubernetes: %w", err)
	}
	out := map[string]engine.Status{}
	for name, n := range nodes {
		out[name] = engine.Status{
			Ready:    ready(n),
			Left:     n.Get("metadata.annotations." + gjson.Escape(left)).Exists(),
			OneByOne: isControlPlane(n),
		}
	}
	return out, nil
}

func isControlPlane(n gjson.Result) bool {
	return n.Get("metadata.labels").Get(gjson.Escape("node-role.kubernetes.io/control-plane")).Exists()
}

func ready(n gjson.Result) bool {
	return n.Get(`status.conditions.#(type=="Ready").status`).String() == "True"
}
