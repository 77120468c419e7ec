package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/inspect"
	"github.com/nixbench/nixbench/deploy/state"
)

func TestCertificateNotes(t *testing.T) {
	now := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	const day = 24 * time.Hour
	row := func(node, name string, ends time.Duration) inspect.Status {
		return inspect.Status{Node: node, Certificates: []engine.Certificate{{Name: name, Begins: now.AddDate(0, -1, 0), Ends: now.Add(ends)}}}
	}
	authority := func(node string, ends time.Duration) inspect.Status {
		s := row(node, "ca.crt", ends)
		s.Certificates[0].Authority = true
		return s
	}
	renewed := func(ends, due time.Duration) inspect.Status {
		s := row("cp-1", "etcd/peer.crt", ends)
		s.Certificates[0].Renewer, s.Certificates[0].Due = "renewal.service", now.Add(due)
		return s
	}
	for want, rows := range map[string][]inspect.Status{
		"": {{Node: "web"}},
		"certificates: apiserver.crt of cp-1 ends first, on 2027-01-06 (made on 2026-04-01)":                {row("w-1", "kubelet", 300*day), row("cp-1", "apiserver.crt", 250*day)},
		"in 10d; nothing renews it: on that node, kubeadm certs renew all":                                  {row("cp-1", "apiserver.crt", 10*day+time.Hour)},
		"it has ended; nothing renews it":                                                                   {row("cp-1", "apiserver.crt", -day)},
		"certificates: etcd/peer.crt of cp-1 ends first, on 2026-05-21, in 20d (made on 2026-04-01)":        {renewed(20*day, -2*day)},
		"in 20d; it should have been renewed since 2026-04-27: on that node, journalctl -u renewal.service": {renewed(20*day, -4*day)},
		"on 2026-07-20; it should have been renewed since":                                                  {renewed(80*day, -4*day)},
		// Certificates that an authority signs end earlier. All nodes have the same authorities.
		"ends first, on 2026-06-30 (made on 2026-04-01)\nauthorities: ca.crt ends on 2027-02-25, and the cluster stops working then; nothing renews it (docs/kubernetes.md)": {
			row("cp-1", "apiserver.crt", 60*day), authority("cp-1", 300*day), authority("cp-2", 300*day), authority("cp-3", 400*day)},
	} {
		if got := strings.Join(describeCertificates(rows, now), "\n"); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestKubeconfigNote(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ends := time.Date(2027, 5, 1, 0, 0, 0, 0, time.UTC)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: ends}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	a := &app{dir: state.Dir(t.TempDir())}
	if got := a.describeKubeconfigExpiry(ends); got != "" {
		t.Errorf("there is no kubeconfig, and the note is %q", got)
	}
	config := `{"clusters":[{"cluster":{"server":"https://192.0.2.1:6443"}}],"users":[{"user":{"client-certificate-data":"` + cert + `","client-key-data":"S0VZ"}}]}`
	if err := os.WriteFile(filepath.Join(string(a.dir), "kubeconfig"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := a.describeKubeconfigExpiry(ends.AddDate(0, 0, -31)); got != "" {
		t.Errorf("a month and a day before: %q", got)
	}
	if got := a.describeKubeconfigExpiry(ends.AddDate(0, 0, -29)); got != "kubeconfig: its certificate ends on 2027-05-01; nixbench kubeconfig writes another" {
		t.Errorf("near its end: %q", got)
	}
}
