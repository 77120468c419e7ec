package kubernetes

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// pki has the keys of a cluster: a folder of files with the names that they have on a node, and the
// hash of the cluster's CA.
type pki struct {
	dir    string
	caHash string
	token  string
}

func newPKI(t *testing.T) pki {
	t.Helper()
	p := pki{dir: t.TempDir()}
	for _, name := range []string{"ca", "front-proxy-ca", "etcd-ca"} {
		key := newKey(t)
		template := &x509.Certificate{
			SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(10, 0, 0),
			KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment | x509.KeyUsageCertSign,
			IsCA:     true, BasicConstraintsValid: true, DNSNames: []string{name},
		}
		der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		p.write(t, name+".crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
		p.write(t, name+".key", privatePEM(t, key))
		if name == "ca" {
			sum := sha256.Sum256(public(t, key.Public()))
			p.caHash = "sha256:" + hex.EncodeToString(sum[:])
		}
	}
	sa := newKey(t)
	p.write(t, "sa.key", privatePEM(t, sa))
	p.write(t, "sa.pub", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public(t, sa.Public())}))

	random := make([]byte, 32+11)
	_, _ = rand.Read(random)
	p.write(t, "encryption-key", []byte(base64.StdEncoding.EncodeToString(random[:32])+"\n"))
	id := hex.EncodeToString(random[32:])
	p.token = id[:6] + "." + id[6:]
	p.write(t, "join-token", []byte(p.token+"\n"))
	p.write(t, "kubernetes-init", []byte("this node may create the cluster\n"))
	return p
}

func (p pki) write(t *testing.T, name string, text []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(p.dir, name), text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func privatePEM(t *testing.T, key *ecdsa.PrivateKey) []byte {
	t.Helper()
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
}

func public(t *testing.T, key crypto.PublicKey) []byte {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}
