package kubernetes

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
	"os"
	"testing"
	"time"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/nixeval"
)

// leaf returns a certificate that is not an authority.
func leaf(t *testing.T, begins, ends time.Time) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: begins, NotAfter: ends}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// Each certificate has the unit that renews it, and the time from which on it does.
func TestCertificates(t *testing.T) {
	ca, err := os.ReadFile("../../secrets/vault/testdata/ca.crt")
	if err != nil {
		t.Fatal(err)
	}
	begins := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	one := leaf(t, begins, begins.AddDate(0, 0, 100))
	text := "file /etc/kubernetes/pki/ca.crt\n" + string(ca) + "file /etc/kubernetes/pki/etcd/peer.crt\n" + one +
		"file /var/lib/kubelet/pki/kubelet-client-current.pem\n" + one
	for settings, want := range map[string]string{
		`{"renewBefore":30}`:   "ca.crt authority;etcd/peer.crt nixbench-kubernetes-certificates.service 2026-03-12;kubelet-client-current.pem kubelet.service 2026-04-01;",
		`{"renewBefore":null}`: "ca.crt authority;etcd/peer.crt no-renewer;kubelet-client-current.pem kubelet.service 2026-04-01;",
	} {
		e := New(engine.Cluster{Members: []engine.Member{{Node: "cp-1", Engine: nixeval.Engine{Role: ControlPlane, Settings: []byte(settings)}}},
			Run: func(context.Context, string, io.Reader, ...string) ([]byte, error) { return []byte(text), nil }})
		all, err := e.Certificates(t.Context(), "cp-1")
		if err != nil {
			t.Fatal(err)
		}
		var got string
		for _, c := range all {
			switch {
			case c.Authority && c.Renewer == "":
				got += c.Name + " authority;"
			case c.Renewer == "" && c.Due.IsZero():
				got += c.Name + " no-renewer;"
			default:
				got += fmt.Sprintf("%s %s %s;", c.Name, c.Renewer, c.Due.Format(time.DateOnly))
			}
		}
		if got != want {
			t.Errorf("%s: %s, want %s", settings, got, want)
		}
	}
}

// The expiry of the certificate can be read from the written kubeconfig.
func TestAccessEnds(t *testing.T) {
	ends := time.Date(2027, 3, 4, 5, 6, 7, 0, time.UTC)
	a := &Access{Cluster: "bench", Server: "https://192.0.2.1:6443", key: "S0VZ",
		certificate: base64.StdEncoding.EncodeToString([]byte(leaf(t, ends.AddDate(-1, 0, 0), ends)))}
	config, err := a.Kubeconfig()
	if err != nil {
		t.Fatal(err)
	}
	if read := ParseKubeconfig(config); read == nil || read.Cluster != "bench" || !read.Ends().Equal(ends) {
		t.Errorf("%+v", read)
	}
	a.certificate, a.token = "", "abc"
	if !a.Ends().IsZero() || ParseKubeconfig([]byte("apiVersion: v1")) != nil || ParseKubeconfig([]byte("{}")) != nil {
		t.Error("a certificate where there is none")
	}
}

func TestParseCertificates(t *testing.T) {
	pem, err := os.ReadFile("../../secrets/vault/testdata/ca.crt")
	if err != nil {
		t.Fatal(err)
	}
	all := parseCertificates("file /etc/kubernetes/pki/apiserver.crt\n" + string(pem) +
		"file /etc/kubernetes/pki/etcd/peer.crt\nwhat is this\nfile /var/lib/kubelet/pki/kubelet-client-current.pem\n" + string(pem) + string(pem))
	if len(all) != 2 || all[0].Name != "apiserver.crt" || all[1].Name != "kubelet-client-current.pem" {
		t.Fatalf("%+v", all)
	}
	if days := all[0].Ends.Sub(all[0].Begins) / (24 * time.Hour); days != 3650 {
		t.Errorf("it lives for %d days", days)
	}
	if got := parseCertificates(""); got != nil {
		t.Errorf("of a node that has not joined: %v", got)
	}
}
