package kubernetes

import (
	"encoding/json"
	"fmt"

	"github.com/nixbench/nixbench/deploy/engine"
)

// settings are what modules/kubernetes says in deployment.engine.settings.
type settings struct {
	Probe  probe  `json:"probe"`
	Port   int    `json:"port"`   // of the API, on each control plane
	Permit string `json:"permit"` // file by which a control plane knows that it may create the cluster
	// RenewBefore is how many days before their end certificates are renewed; 0: nobody renews them.
	RenewBefore int    `json:"renewBefore"`
	Version     string `json:"version"` // of what its member runs
}

// probe is a small image with a web server and a client in it.
type probe struct {
	Image string   `json:"image"`
	Serve []string `json:"serve"` // serves on port 8080
	Get   []string `json:"get"`   // the URL is added
}

func (e *Engine) settings() (settings, error) {
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
			return s, readSettings(m, &s)
		}
	}
	return s, nil
}

// readSettings adds what the member's module says.
func readSettings(m engine.Member, into any) error {
	if len(m.Settings) == 0 {
		return nil
	}
	if err := json.Unmarshal(m.Settings, into); err != nil {
		return fmt.Errorf("%s: deployment.engine.settings: %w", m.Node, err)
	}
	return nil
}
