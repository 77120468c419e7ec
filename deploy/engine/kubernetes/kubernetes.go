// Package kubernetes is the engine for clusters that modules/kubernetes sets up with kubeadm. It runs kubectl on a control plane over the
// SSH connection of the deployment, so the credentials of the cluster do not leave its nodes.
package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/nixbench/nixbench/deploy/engine"
)

const (
	ControlPlane = "control-plane"
	Worker       = "worker"
)

// AdminConf is the kubeconfig of the administrator on a control plane.
const AdminConf = "/etc/kubernetes/admin.conf"

const defaultPort = 6443

var Kind = engine.Kind{
	Name:         "kubernetes",
	Title:        "Kubernetes",
	New:          func(c engine.Cluster) engine.Engine { return New(c) },
	APIPort:      defaultPort,
	AccessFile:   "kubeconfig",
	UsageForm:    "nixbench kubectl get nodes shows the nodes of the cluster",
	DrainOptions: []engine.DrainOption{BarePods, LocalData},
	Help: engine.Help{
		Check: `Kubernetes: the API is healthy, exactly the hive's nodes are registered and
Ready, and system pods run. --deep runs a pod on one worker, which a pod on
another worker reaches directly and through a Service.`,
		Drain: `Kubernetes: bare pods, pods with data in emptyDir volumes, and pods whose
disruption budget never allows an eviction block a drain. --drain-delete allows
the deletion of the first two.`,
		Remove: `Kubernetes: the Node object of a removed member is deleted, and a control plane
is also removed from etcd.`,
		Rotate: `Kubernetes: the key ring kubernetes-encryption encrypts the Secrets in etcd.`,
	},
}

// Engine implements [engine.Engine] for a Kubernetes cluster that kubeadm has set up.
type Engine struct{ *Client }

func New(c engine.Cluster) *Engine { return &Engine{&Client{Cluster: c}} }

func (e *Engine) Members(ctx context.Context) (map[string]engine.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	nodes, err := e.Nodes(ctx)
	if errors.Is(err, ErrNoControlPlane) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("kubernetes: %w", err)
	}
	out := map[string]engine.Status{}
	for name, n := range nodes {
		out[name] = engine.Status{
			Ready:    IsReady(n),
			Drained:  DrainMark(n) != "",
			OneByOne: hasControlPlaneLabel(n),
			Cordoned: n.Get("spec.unschedulable").Bool(),
			Version:  strings.TrimPrefix(n.Get("status.nodeInfo.kubeletVersion").String(), "v"),
		}
	}
	return out, nil
}

func hasControlPlaneLabel(n gjson.Result) bool {
	return n.Get("metadata.labels").Get(gjson.Escape(controlPlaneTaint.Key)).Exists()
}

// controlPlaneTaint is the taint that kubeadm sets on each control plane. It sets a label with the same key.
var controlPlaneTaint = Taint{Key: "node-role.kubernetes.io/control-plane", Effect: "NoSchedule"}

func (c *Client) IsControlPlane(node string) bool { return c.Member(node).Role == ControlPlane }

// settings are the values that modules/kubernetes sets in deployment.engine.settings.
type settings struct {
	Probe  Probe  `json:"probe"`
	Port   int    `json:"port"`   // the port of the API server on each control plane
	Permit string `json:"permit"` // the path of the file that permits a control plane to create the cluster
	// JoinConfig is the path of the kubeconfig with which a node joins. It is empty if nodes join with a token that
	// the user has put on them.
	JoinConfig string `json:"joinConfig"`
	// RenewBefore is how many days before its expiry a certificate is renewed. With 0, certificates are not renewed.
	RenewBefore int    `json:"renewBefore"`
	Version     string `json:"version"` // the version of Kubernetes on the member, such as 1.34.4
	// Hollow is the number of hollow nodes: the nodes that this machine simulates.
	Hollow int `json:"hollow"`
	// Checks are additional checks of Kubernetes objects, which the hive defines. Only control planes have them.
	Checks map[string]ObjectCheck `json:"checks"`
}

// settings returns the settings of the first control plane in the hive that has settings.
func (c *Client) settings() (settings, error) {
	s := settings{Port: defaultPort}
	for _, m := range c.Members {
		if m.Role == ControlPlane && len(m.Settings) > 0 {
			return s, m.ReadSettings(&s)
		}
	}
	return s, nil
}
