package kubernetes

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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

// Each certificate has the unit that renews it, and the time from which on it does. A worker has no key of the authority, so
// the authority's certificate is not one of its own.
func TestCertificates(t *testing.T) {
	ca, err := os.ReadFile("../../secrets/vault/testdata/ca.crt")
	if err != nil {
		t.Fatal(err)
	}
	begins := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	one := leaf(t, begins, begins.AddDate(0, 0, 100))
	const pki, kubelet = "/etc/kubernetes/pki/", "/var/lib/kubelet/pki/kubelet-client-current.pem"
	controlPlane := map[string]string{pki + "ca.crt": string(ca), pki + "ca.key": "", pki + "sa.key": "", pki + "etcd/peer.crt": one, pki + "etcd/peer.key": "", kubelet: one}
	worker := map[string]string{pki + "ca.crt": string(ca), kubelet: one}
	for _, test := range []struct {
		settings, want string
		files          map[string]string
	}{
		{`{"renewBefore":30}`, "ca.crt authority;etcd/peer.crt nixbench-kubernetes-certificates.service 2026-03-12;kubelet-client-current.pem kubelet.service 2026-04-01;", controlPlane},
		{`{"renewBefore":null}`, "ca.crt authority;etcd/peer.crt no-renewer;kubelet-client-current.pem kubelet.service 2026-04-01;", controlPlane},
		{`{"renewBefore":30}`, "kubelet-client-current.pem kubelet.service 2026-04-01;", worker},
	} {
		settings, want, root := test.settings, test.want, t.TempDir()
		for name, text := range test.files {
			if err := errors.Join(os.MkdirAll(filepath.Dir(root+name), 0o700), os.WriteFile(root+name, []byte(text), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		e := New(engine.Cluster{Members: []engine.Member{{Node: "cp-1", Engine: nixeval.Engine{Role: ControlPlane, Settings: []byte(settings)}}},
			Run: func(_ context.Context, _ string, _ io.Reader, argv ...string) ([]byte, error) {
				script := strings.NewReplacer("/etc/", root+"/etc/", "/var/", root+"/var/").Replace(argv[2])
				out, err := exec.Command(argv[0], argv[1], script).Output()
				return []byte(strings.ReplaceAll(string(out), root, "")), err
			}})
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
	a := &Access{Cluster: "bench", Server: "https://192.0.2.1:6443",
		credentials: credentials{Key: []byte("KEY"), Certificate: []byte(leaf(t, ends.AddDate(-1, 0, 0), ends))}}
	config, err := a.Kubeconfig()
	if err != nil {
		t.Fatal(err)
	}
	if read := ParseKubeconfig("", config); read == nil || read.Cluster != "bench" || !read.Ends().Equal(ends) {
		t.Errorf("%+v", read)
	}
	a.credentials = credentials{Token: "abc"}
	if !a.Ends().IsZero() || ParseKubeconfig("", []byte("apiVersion: v1")) != nil || ParseKubeconfig("", []byte("{}")) != nil {
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
