package kubernetes

import (
	"encoding/json"
	"fmt"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/failure"
)

// settings are the values that modules/kubernetes sets in deployment.engine.settings.
type settings struct {
	Probe  probe  `json:"probe"`
	Port   int    `json:"port"`   // the port of the API server on each control plane
	Permit string `json:"permit"` // the path of the file that permits a control plane to create the cluster
	// JoinConfig is the path of the kubeconfig with which a node joins. It is empty if nodes join with a token that
	// the user has put on them.
	JoinConfig string `json:"joinConfig"`
	// RenewBefore is the number of days between the renewal of a certificate and its expiry. With 0,
	// certificates are not renewed.
	RenewBefore int    `json:"renewBefore"`
	Version     string `json:"version"` // the version of Kubernetes on the member, such as 1.34.4
	// Hollow is the number of hollow nodes for which the machine stands.
	Hollow int `json:"hollow"`
	// Checks are the checks of objects that the hive adds. Only control planes have them.
	Checks map[string]objectCheck `json:"checks"`
}

// probe is the image of the pods of deep checks, with the commands of its web server and its web client.
type probe struct {
	Image string   `json:"image"`
	Serve []string `json:"serve"` // the command that serves HTTP on port 8080
	Get   []string `json:"get"`   // the command that requests a URL, which is appended as the last argument
}

// clusterSettings returns the settings of the first control plane in the hive that has settings. Missing
// values have defaults.
func (e *Engine) clusterSettings() (settings, error) {
	s := settings{
		Probe: probe{
			Image: "docker.io/library/busybox:1.37",
			Serve: []string{"httpd", "-f", "-p", "8080", "-h", "/etc"},
			Get:   []string{"wget", "-q", "-T", "3", "-O", "-"},
		},
		Port:   defaultPort,
		Permit: "/run/nixbench/secrets/kubernetes-init",
	}
	for _, m := range e.Cluster.Members {
		if m.Role == ControlPlane && len(m.Settings) > 0 {
			return s, decodeSettings(m, &s)
		}
	}
	return s, nil
}

// decodeSettings decodes the settings of a member into a struct. Fields that the settings do not contain stay
// unchanged.
func decodeSettings(m engine.Member, into any) error {
	if len(m.Settings) == 0 {
		return nil
	}
	if err := json.Unmarshal(m.Settings, into); err != nil {
		return failure.On(m.Node, fmt.Errorf("deployment.engine.settings: %w", err))
	}
	return nil
}
