package kubernetes

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/nixeval"
)

func TestAccess(t *testing.T) {
	admin := `{"clusters":[{"name":"kubernetes","cluster":{"server":"https://192.168.222.11:6443","certificate-authority-data":"Q0E="}}],
		"users":[{"name":"kubernetes-admin","user":{"client-certificate-data":"Q1JU","client-key-data":"S0VZ"}}]}`
	e := New(engine.Cluster{Name: "bench", Members: []engine.Member{
		{Node: "cp-1", Engine: nixeval.Engine{Role: ControlPlane}}, {Node: "cp-2", Engine: nixeval.Engine{Role: ControlPlane}}},
		Run: func(_ context.Context, node string, _ io.Reader, _ ...string) ([]byte, error) {
			if node == "cp-1" {
				return nil, fmt.Errorf("cp-1: no route to host")
			}
			return []byte(admin), nil
		}})
	a, err := e.ReadAdminAccess(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	a.Server, a.ServerName = "https://127.0.0.1:40000", "192.168.222.11"
	config, err := a.Kubeconfig()
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"current-context": "bench", "contexts.0.name": "bench", "contexts.0.context.user": "bench-admin", "users.0.name": "bench-admin",
		"clusters.0.cluster.server": "https://127.0.0.1:40000", "clusters.0.cluster.tls-server-name": "192.168.222.11",
		"clusters.0.cluster.certificate-authority-data": "Q0E=", "users.0.user.client-key-data": "S0VZ",
	} {
		if got := gjson.GetBytes(config, path).String(); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	admin = "{}"
	if _, err := e.ReadAdminAccess(t.Context()); err == nil || !strings.Contains(err.Error(), "cp-2: /etc/kubernetes/admin.conf has no cluster") {
		t.Error(err)
	}
}
