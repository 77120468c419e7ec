package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/engine/kubernetes"
	"github.com/nixbench/nixbench/deploy/state"
	"github.com/nixbench/nixbench/nixeval"
)

// configUntil returns a kubeconfig whose certificate expires at the given time.
func configUntil(t *testing.T, ends time.Time) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: ends}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	return fmt.Appendf(nil, `{"clusters":[{"cluster":{"server":"https://192.0.2.1:6443"}}],"users":[{"user":{"client-certificate-data":"%s","client-key-data":"S0VZ"}}]}`, cert)
}

// The kubeconfig is fetched only if there is none, or if its certificate has expired.
func TestEnsureAccess(t *testing.T) {
	ends := time.Date(2027, 5, 1, 0, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		before  []byte // nil: there is no file
		fetches int
	}{
		"none":    {nil, 1},
		"valid":   {configUntil(t, ends.Add(time.Hour)), 0},
		"expired": {configUntil(t, ends.Add(-time.Hour)), 1},
		"damaged": {[]byte("{}"), 1},
	} {
		fetches := 0
		dir := state.Dir(filepath.Join(t.TempDir(), ".nixbench", "hive"))
		cluster := engine.Cluster{
			Name: "hive", Members: []engine.Member{{Node: "cp-1", Engine: nixeval.Engine{Role: kubernetes.ControlPlane}}},
			Run: func(context.Context, string, io.Reader, ...string) ([]byte, error) {
				fetches++
				return configUntil(t, ends.AddDate(1, 0, 0)), nil
			},
		}
		if test.before != nil {
			if err := dir.Create(); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(accessFile(dir), test.before, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		access, err := ensureAccess(t.Context(), dir, cluster, ends)
		if err != nil || fetches != test.fetches || !access.Ends().After(ends) {
			t.Errorf("%s: %v, fetched %d times, want %d", name, err, fetches, test.fetches)
		}
		data, err := os.ReadFile(accessFile(dir))
		if err != nil || !kubernetes.ParseKubeconfig("", data).Ends().Equal(access.Ends()) {
			t.Errorf("%s: the file in the state folder is another one: %v", name, err)
		}
	}
}

func TestIsReachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	access := &kubernetes.Access{Server: "https://" + l.Addr().String()}
	if !isReachable(t.Context(), access) {
		t.Error("a server that listens is not reachable")
	}
	l.Close()
	if isReachable(t.Context(), access) {
		t.Error("a closed port is reachable")
	}
}
