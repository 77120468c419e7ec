package kubernetes

import (
	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/engine/kubernetes/api"
)

const defaultPort = 6443

var Kind = engine.Kind{
	Name:         "kubernetes",
	Title:        "Kubernetes",
	New:          func(c engine.Cluster) engine.Engine { return New(c) },
	APIPort:      defaultPort,
	AccessFile:   "kubeconfig",
	UsageForm:    "nixbench kubectl get nodes shows the nodes of the cluster",
	DrainOptions: []engine.DrainOption{api.BarePods, api.LocalData},
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
