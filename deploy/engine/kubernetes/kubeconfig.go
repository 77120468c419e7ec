package kubernetes

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"time"

	"github.com/tidwall/gjson"

	"github.com/nixbench/nixbench/deploy/engine/kubernetes/api"
	"github.com/nixbench/nixbench/deploy/failure"
)

// Access contains the address of a cluster's API and the credentials of the cluster's administrator. It
// is secret, because the credentials allow every operation on the cluster.
type Access struct {
	Cluster string
	Server  string // URL
	// ServerName is the name to expect in the certificate of the API server. It is empty if that name is
	// the host in Server.
	ServerName         string
	authority, key     string // in base64, as in a kubeconfig, except the token
	certificate, token string
}

// ReadAdminAccess reads the credentials of the administrator from the first control plane that has them.
func (e *Engine) ReadAdminAccess(ctx context.Context) (*Access, error) {
	var errs []error
	for _, node := range e.NodesOf(ControlPlane) {
		// kubectl converts admin.conf, which is YAML, to JSON.
		out, err := e.Command(ctx, node, "kubectl", "config", "view", "--kubeconfig", adminConf, "--raw", "--flatten", "-o", "json")
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if a := newAccess(e.Name, out); a != nil {
			return a, nil
		}
		errs = append(errs, failure.On(node, fmt.Errorf("%s has no cluster, or no user", adminConf)))
	}
	if len(errs) == 0 {
		errs = append(errs, errors.New("the hive has no control plane"))
	}
	return nil, NewAccessError(errors.Join(errs...))
}

// NewAccessError returns the error if no control plane has the credentials of the administrator, with the reasons.
func NewAccessError(err error) error {
	return failure.WithHint(failure.WithKind(failure.Cluster, fmt.Errorf("no control plane has an administrator's kubeconfig yet: %w", err)),
		"nixbench check shows how far the setup of the cluster is")
}

// newAccess returns the first cluster and the first user of a kubeconfig in JSON, or nil if the kubeconfig
// has no server or no credentials.
func newAccess(cluster string, config []byte) *Access {
	c, u := gjson.GetBytes(config, "clusters.0.cluster"), gjson.GetBytes(config, "users.0.user")
	a := &Access{
		Cluster: cluster, Server: c.Get("server").String(), authority: c.Get("certificate-authority-data").String(),
		certificate: u.Get("client-certificate-data").String(), key: u.Get("client-key-data").String(), token: u.Get("token").String(),
	}
	if a.Server == "" || a.key == "" && a.token == "" {
		return nil
	}
	return a
}

// Ends returns the time at which the certificate of the administrator expires. It returns the zero time if
// the credentials are a token.
func (a *Access) Ends() time.Time {
	text, _ := base64.StdEncoding.DecodeString(a.certificate)
	if block, _ := pem.Decode(text); block != nil {
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil {
			return cert.NotAfter.UTC()
		}
	}
	return time.Time{}
}

// ParseKubeconfig parses a kubeconfig that [Access.Kubeconfig] has returned. It returns nil if the text is
// not valid.
func ParseKubeconfig(kubeconfig []byte) *Access {
	if !json.Valid(kubeconfig) {
		return nil
	}
	return newAccess(gjson.GetBytes(kubeconfig, "current-context").String(), kubeconfig)
}

// User returns the name of the user in the kubeconfig.
func (a *Access) User() string { return a.Cluster + "-admin" }

// Kubeconfig returns a kubeconfig in JSON, which is valid YAML. The kubeconfig has one context, with the
// name of the cluster.
func (a *Access) Kubeconfig() ([]byte, error) {
	cluster := api.Object{"server": a.Server, "certificate-authority-data": a.authority}
	if a.ServerName != "" {
		cluster["tls-server-name"] = a.ServerName
	}
	user := api.Object{}
	for name, value := range map[string]string{"client-certificate-data": a.certificate, "client-key-data": a.key, "token": a.token} {
		if value != "" {
			user[name] = value
		}
	}
	data, err := json.MarshalIndent(api.Object{
		"apiVersion": "v1", "kind": "Config", "current-context": a.Cluster, "preferences": api.Object{},
		"clusters": []api.Object{{"name": a.Cluster, "cluster": cluster}},
		"users":    []api.Object{{"name": a.User(), "user": user}},
		"contexts": []api.Object{{"name": a.Cluster, "context": api.Object{"cluster": a.Cluster, "user": a.User()}}},
	}, "", "  ")
	if err != nil {
		return nil, err
	}
	return append(data, '\n'), nil
}
