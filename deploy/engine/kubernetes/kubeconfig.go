package kubernetes

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nixbench/nixbench/deploy/failure"
)

// Access contains the address of a cluster's API and the credentials of the cluster's administrator. It
// is secret, because the credentials allow every operation on the cluster.
type Access struct {
	Cluster   string `json:"-"`
	Authority []byte `json:"certificate-authority-data,omitempty"`
	Server    string `json:"server"` // URL
	// ServerName is the name to expect in the certificate of the API server. It is empty if the host in Server is that name.
	ServerName  string `json:"tls-server-name,omitempty"`
	credentials credentials
}

type credentials struct {
	Certificate []byte `json:"client-certificate-data,omitempty"`
	Key         []byte `json:"client-key-data,omitempty"`
	Token       string `json:"token,omitempty"`
}

// ReadAdminAccess reads the credentials of the administrator from the first control plane that has them.
func (e *Engine) ReadAdminAccess(ctx context.Context) (*Access, error) {
	var errs []error
	for _, node := range e.NodesOf(ControlPlane) {
		// kubectl converts admin.conf, which is YAML, to JSON.
		out, err := e.Command(ctx, node, "kubectl", "config", "view", "--kubeconfig", AdminConf, "--raw", "--flatten", "-o", "json")
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if a := ParseKubeconfig(e.Name, out); a != nil {
			return a, nil
		}
		errs = append(errs, failure.On(node, fmt.Errorf("%s has no cluster, or no user", AdminConf)))
	}
	if len(errs) == 0 {
		errs = append(errs, errors.New("the hive has no control plane"))
	}
	return nil, NewAccessError(errors.Join(errs...))
}

// WithToken returns the access of a user with a token to the same API.
func (a *Access) WithToken(token string) *Access {
	return &Access{Cluster: a.Cluster, Authority: a.Authority, Server: a.Server, ServerName: a.ServerName, credentials: credentials{Token: token}}
}

func NewAccessError(err error) error {
	return failure.WithHint(failure.WithKind(failure.Cluster, fmt.Errorf("no control plane has an administrator's kubeconfig yet: %w", err)),
		"nixbench check shows how far the setup of the cluster is")
}

// ParseKubeconfig returns the first cluster and the first user of config, a kubeconfig in JSON. It returns nil if config is not valid, or has
// no server or no credentials. If the name of the cluster is empty, it is that of the current context.
func ParseKubeconfig(cluster string, config []byte) *Access {
	var c struct {
		Context  string `json:"current-context"`
		Clusters []struct{ Cluster *Access }
		Users    []struct{ User credentials }
	}
	if err := json.Unmarshal(config, &c); err != nil || len(c.Clusters) == 0 || len(c.Users) == 0 {
		return nil
	}
	a := c.Clusters[0].Cluster
	if u := c.Users[0].User; a == nil || a.Server == "" || u.Key == nil && u.Token == "" {
		return nil
	}
	a.Cluster, a.credentials = cmp.Or(cluster, c.Context), c.Users[0].User
	return a
}

// Ends returns the time at which the certificate of the administrator expires. It returns the zero time if the credentials are a token.
func (a *Access) Ends() time.Time {
	if cert := parseCertificate(a.credentials.Certificate); cert != nil {
		return cert.NotAfter.UTC()
	}
	return time.Time{}
}

func (a *Access) User() string { return a.Cluster + "-admin" }

// Kubeconfig returns a kubeconfig in JSON, which is valid YAML. The kubeconfig has one context, with the name of the cluster.
func (a *Access) Kubeconfig() ([]byte, error) {
	data, err := json.MarshalIndent(Object{
		"apiVersion": "v1", "kind": "Config", "current-context": a.Cluster, "preferences": Object{},
		"clusters": []Object{{"name": a.Cluster, "cluster": a}},
		"users":    []Object{{"name": a.User(), "user": a.credentials}},
		"contexts": []Object{{"name": a.Cluster, "context": Object{"cluster": a.Cluster, "user": a.User()}}},
	}, "", "  ")
	if err != nil {
		return nil, err
	}
	return append(data, '\n'), nil
}
