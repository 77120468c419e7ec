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
	Port   int    `json:"port"`   // of the API, on each control plane
	Permit string `json:"permit"` // the file that permits a control plane to create the cluster
	// RenewBefore is how many days before their expiry certificates are renewed. With 0 they are not renewed.
	RenewBefore int    `json:"renewBefore"`
	Version     string `json:"version"` // of Kubernetes on the member
}

// probe is a small image that contains a web server and a web client.
type probe struct {
	Image string   `json:"image"`
	Serve []string `json:"serve"` // serves on port 8080
	Get   []string `json:"get"`   // requests the URL that is appended
}

func (e *Engine) clusterSettings() (settings, error) {
	s := settings{
		Probe: probe{
			Image: "docker.io/library/busybox:1.37",
			Serve: []string{"httpd", "-f", "-p", "8080", "-h", "/etc"},
			Get:   []string{"wget", "-q", "-T", "3", "-O", "-"},
		},
		Port:   6443,
		Permit: "/run/nixbench/secrets/kubernetes-init",
	}
	for _, m := range e.Cluster.Members {
		if m.Role == ControlPlane && len(m.Settings) > 0 {
			return s, decodeSettings(m, &s)
		}
	}
	return s, nil
}

// decodeSettings decodes the settings of a member. Values that the member does not set are unchanged.
func decodeSettings(m engine.Member, into any) error {
	if len(m.Settings) == 0 {
		return nil
	}
	if err := json.Unmarshal(m.Settings, into); err != nil {
		return failure.On(m.Node, fmt.Errorf("deployment.engine.settings: %w", err))
	}
	return nil
}
