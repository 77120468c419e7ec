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
)

// Access is what an administrator needs to get into a cluster. It is secret: whoever
// has it may do anything there.
type Access struct {
	Cluster string
	Server  string // URL
	// ServerName is in the server's certificate, where Server is a way round.
	ServerName         string
	authority, key     string // base64, as a kubeconfig has them
	certificate, token string
}

// Access asks a control plane for its administrator's.
func (e *Engine) Access(ctx context.Context) (*Access, error) {
	var errs []error
	for _, node := range e.controlPlanes() {
		ctx, cancel := context.WithTimeout(ctx, askTimeout)
		// As JSON, whatever kubeadm writes.
		out, err := e.Run(ctx, node, nil, "kubectl", "config", "view", "--kubeconfig", admin, "--raw", "--flatten", "-o", "json")
		cancel()
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if a := parseAccess(e.Name, out); a != nil {
			return a, nil
		}
		errs = append(errs, fmt.Errorf("%s: %s has no cluster, or no user", node, admin))
	}
	if len(errs) == 0 {
		errs = append(errs, errors.New("the hive has none"))
	}
	return nil, &AccessError{Err: errors.Join(errs...)}
}

// AccessError is for a cluster that nobody has a way into.
type AccessError struct{ Err error }

func (e *AccessError) Error() string {
	return "no control plane has an administrator's kubeconfig yet: " + e.Err.Error()
}
func (e *AccessError) Unwrap() error { return e.Err }

// Hint says what to do about it.
func (e *AccessError) Hint() string { return "nixbench check tells how far the cluster is" }

func parseAccess(cluster string, config []byte) *Access {
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

// Ends is when the certificate ends by which the administrator is known; zero if it is
// known by a token.
func (a *Access) Ends() time.Time {
	text, err := base64.StdEncoding.DecodeString(a.certificate)
	if err != nil {
		return time.Time{}
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return time.Time{}
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return time.Time{}
	}
	return cert.NotAfter.UTC()
}

// ReadAccess reads a file that [Access.Kubeconfig] wrote; nil if it is none.
func ReadAccess(kubeconfig []byte) *Access {
	if !gjson.ValidBytes(kubeconfig) {
		return nil
	}
	return parseAccess(gjson.GetBytes(kubeconfig, "current-context").String(), kubeconfig)
}

// User is what a kubeconfig calls the administrator.
func (a *Access) User() string { return a.Cluster + "-admin" }

// Authority is the certificate of the cluster's authority, in base64.
func (a *Access) Authority() string { return a.authority }

// Kubeconfig is a file that kubectl takes, with one context that is called as the cluster.
// It is JSON, which every YAML reader reads.
func (a *Access) Kubeconfig() ([]byte, error) {
	cluster := object{"server": a.Server, "certificate-authority-data": a.authority}
	if a.ServerName != "" {
		cluster["tls-server-name"] = a.ServerName
	}
	user := object{}
	for name, value := range map[string]string{"client-certificate-data": a.certificate, "client-key-data": a.key, "token": a.token} {
		if value != "" {
			user[name] = value
		}
	}
	data, err := json.MarshalIndent(object{
		"apiVersion": "v1", "kind": "Config", "current-context": a.Cluster, "preferences": object{},
		"clusters": []object{{"name": a.Cluster, "cluster": cluster}},
		"users":    []object{{"name": a.User(), "user": user}},
		"contexts": []object{{"name": a.Cluster, "context": object{"cluster": a.Cluster, "user": a.User()}}},
	}, "", "  ")
	if err != nil {
		return nil, err
	}
	return append(data, '\n'), nil
}
