package remote_test

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/deploy/remote/sshconfig"
)

// certify signs a public key for a user or a host, and writes the certificate.
func certify(t *testing.T, ca ssh.Signer, subject ssh.PublicKey, kind uint32, principal, file string) {
	t.Helper()
	cert := &ssh.Certificate{Key: subject, CertType: kind, KeyId: "test", ValidPrincipals: []string{principal},
		ValidBefore: ssh.CertTimeInfinity}
	if err := cert.SignCert(rand.Reader, ca); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, ssh.MarshalAuthorizedKey(cert), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestCertificates logs in to a real sshd with a certificate, and checks its
// host certificate against an authority in known_hosts.
func TestCertificates(t *testing.T) {
	t.Parallel()
	ca, hostKey, user := newKey(t), newKey(t), newKey(t)
	hostCert := filepath.Join(t.TempDir(), "host-cert.pub")
	certify(t, ca.signer, hostKey.signer.PublicKey(), ssh.HostCert, "127.0.0.1", hostCert)
	certify(t, ca.signer, user.signer.PublicKey(), ssh.UserCert, currentUser(t), user.file+"-cert.pub")
	s := kind(realSSHD).start(t, want{
		hostKey: hostKey, user: ca, userCA: "cert-authority ", // authorized is the authority, not the key
		sshdConfig: "HostCertificate " + hostCert,
	})

	authority := "@cert-authority * " + authorized(ca.signer.PublicKey())
	for name, set := range map[string]func(*sshconfig.Config){
		"KEY-cert.pub": func(*sshconfig.Config) {},
		"CertificateFile": func(cfg *sshconfig.Config) {
			moved := filepath.Join(t.TempDir(), "cert")
			data, _ := os.ReadFile(user.file + "-cert.pub")
			os.WriteFile(moved, data, 0o600)
			cfg.IdentityFiles, cfg.CertificateFiles = []string{copyFile(t, user.file)}, []string{moved}
		},
	} {
		cfg := s.unpinned(t, authority)
		cfg.IdentityFiles = []string{user.file}
		set(&cfg)
		if err := try(t, cfg, remote.Options{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	cfg := s.unpinned(t, authority)
	cfg.IdentityFiles = []string{copyFile(t, user.file)}
	var auth *remote.AuthError
	if err := try(t, cfg, remote.Options{}); !errors.As(err, &auth) {
		t.Errorf("without the certificate: %v", err)
	}
	// A plain entry still works beside the host's certificate.
	cfg = s.unpinned(t, s.known(hostKey))
	cfg.IdentityFiles = []string{user.file}
	if err := try(t, cfg, remote.Options{}); err != nil {
		t.Errorf("with the plain host key: %v", err)
	}
	cfg = s.unpinned(t, "@cert-authority * "+authorized(newKey(t).signer.PublicKey()))
	cfg.IdentityFiles = []string{user.file}
	if err := try(t, cfg, remote.Options{AcceptNewHostKeys: true}); err == nil {
		t.Error("a certificate of another authority was accepted")
	}
}

func copyFile(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(t.TempDir(), "copy")
	if err := os.WriteFile(to, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return to
}

// TestRSA is about the one type of key that signs in more than one way: sshd
// refuses the oldest of them. It covers a key in a file, in an agent, and of
// a host.
func TestRSA(t *testing.T) {
	t.Parallel()
	private, err := rsa.GenerateKey(rand.Reader, 3072)
	if err != nil {
		t.Fatal(err)
	}
	signer, _ := ssh.NewSignerFromKey(private)
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "rsa")
	os.WriteFile(file, pem.EncodeToMemory(block), 0o600)
	rsaKey := key{file, signer}
	s := kind(realSSHD).start(t, want{user: rsaKey, hostKey: rsaKey})
	if err := try(t, s.config(t), remote.Options{}); err != nil {
		t.Error(err)
	}
	if err := try(t, s.unpinned(t, s.known(rsaKey)), remote.Options{}); err != nil {
		t.Error(err)
	}
	keyring := agent.NewKeyring()
	keyring.Add(agent.AddedKey{PrivateKey: private})
	cfg := s.config(t)
	cfg.IdentityAgent, cfg.IdentityFiles, cfg.IdentitiesOnly = serveAgent(t, keyring), nil, false
	if err := try(t, cfg, remote.Options{}); err != nil {
		t.Errorf("from the agent: %v", err)
	}
}
