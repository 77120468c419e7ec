package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"github.com/nixbench/nixbench/deploy/durable"
)

// identities gathers the keys to log in with, in OpenSSH's order: those that
// the configuration names, from the agent if it has them, then the agent's
// others. A server that counts attempts gives up after six.
type identities struct {
	cfg     Config
	keyring *Keyring
	ask     Prompt
	pause   func() (resume func()) // stops the time limit while the user types or touches a key

	signers []ssh.Signer
	tried   []string // the offered keys, and why a configured key is not offered
	signErr error    // why a key that the server accepted did not sign
}

// load returns a function that closes the connection to the agent.
func (id *identities) load(ctx context.Context) (closeAgent func()) {
	closeAgent = func() {}
	var fromAgent []ssh.Signer
	if socket := id.cfg.IdentityAgent; socket != "" {
		limited, cancel := context.WithTimeout(ctx, 5*time.Second)
		conn, err := (&net.Dialer{}).DialContext(limited, "unix", socket)
		cancel()
		if err == nil {
			// An agent that does not answer must not delay a cancellation.
			stop := context.AfterFunc(ctx, func() { conn.Close() })
			closeAgent = func() { stop(); conn.Close() }
			conn.SetDeadline(time.Now().Add(5 * time.Second))
			fromAgent, err = agent.NewClient(conn).Signers()
			conn.SetDeadline(time.Now().Add(2 * time.Minute)) // a hardware key may wait for a touch
		}
		if err != nil {
			id.tried = append(id.tried, fmt.Sprintf("agent %s (%v)", socket, err))
		}
	}
	certificates := id.certificates()
	used := map[int]bool{}
	for _, file := range id.cfg.IdentityFiles {
		signer, from, err := id.identity(ctx, file, fromAgent, used)
		if errors.Is(err, os.ErrNotExist) && isDefaultName(file) {
			continue
		}
		if err != nil {
			id.tried = append(id.tried, fmt.Sprintf("%s (%v)", file, explain(err)))
			continue
		}
		for _, cert := range certificates {
			if bytes.Equal(cert.Key.Marshal(), signer.PublicKey().Marshal()) {
				if with, err := ssh.NewCertSigner(cert, signer); err == nil {
					id.offer(with, file+" with its certificate")
				}
			}
		}
		id.offer(signer, from)
	}
	if id.cfg.IdentitiesOnly {
		return closeAgent
	}
	for i, signer := range fromAgent {
		if !used[i] {
			id.offer(signer, "agent key "+ssh.FingerprintSHA256(signer.PublicKey()))
		}
	}
	return closeAgent
}

// identity finds the key that a file names: in the agent, or in the file.
func (id *identities) identity(ctx context.Context, file string, fromAgent []ssh.Signer, used map[int]bool) (ssh.Signer, string, error) {
	public, err := readPublicKey(strings.TrimSuffix(file, ".pub") + ".pub")
	if err != nil {
		public, _ = readPublicKey(file) // IdentityFile may be a public key under any name
	}
	if public == nil {
		public = publicHalf(file)
	}
	if public != nil {
		for i, signer := range fromAgent {
			if bytes.Equal(signer.PublicKey().Marshal(), public.Marshal()) {
				used[i] = true
				return signer, file + " from the agent", nil
			}
		}
	}
	signer, err := id.keyring.open(ctx, file, id.ask)
	return signer, file, err
}

// publicHalf reads the public key from a private key's file, without a passphrase.
func publicHalf(file string) ssh.PublicKey {
	pem, err := durable.Read(file, durable.KeySize)
	if err != nil {
		return nil
	}
	signer, err := ssh.ParsePrivateKey(pem)
	var locked *ssh.PassphraseMissingError
	if errors.As(err, &locked) {
		return locked.PublicKey
	}
	if err != nil {
		return nil
	}
	return signer.PublicKey()
}

// certificates reads CertificateFile and, as ssh does, KEY-cert.pub.
func (id *identities) certificates() []*ssh.Certificate {
	var certs []*ssh.Certificate
	read := func(file string) error {
		key, err := readPublicKey(file)
		if err != nil {
			return err
		}
		cert, ok := key.(*ssh.Certificate)
		if !ok {
			return errors.New("not a certificate")
		}
		certs = append(certs, cert)
		return nil
	}
	for _, file := range id.cfg.CertificateFiles {
		if err := read(file); err != nil {
			id.tried = append(id.tried, fmt.Sprintf("certificate %s (%v)", file, explain(err)))
		}
	}
	for _, file := range id.cfg.IdentityFiles {
		_ = read(file + "-cert.pub") // most keys have none
	}
	return certs
}

func (id *identities) offer(signer ssh.Signer, name string) {
	id.signers = append(id.signers, &watchedKey{Signer: signer, pause: id.pause, failed: func(err error) {
		id.signErr = fmt.Errorf("%s: %w", name, err)
	}})
	id.tried = append(id.tried, name)
}

// watchedKey stores why signing failed, because x/crypto does not return that error.
type watchedKey struct {
	ssh.Signer
	pause  func() (resume func())
	failed func(error)
}

func (w *watchedKey) SignWithAlgorithm(rand io.Reader, data []byte, algorithm string) (sig *ssh.Signature, err error) {
	defer w.pause()()
	if with, ok := w.Signer.(ssh.AlgorithmSigner); ok {
		sig, err = with.SignWithAlgorithm(rand, data, algorithm)
	} else {
		sig, err = w.Signer.Sign(rand, data)
	}
	if err != nil {
		w.failed(err)
	}
	return sig, err
}

// explain shortens the library's error about a key file.
func explain(err error) string {
	switch {
	case errors.Is(err, os.ErrNotExist):
		return "no such file"
	case errors.Is(err, os.ErrPermission):
		return "permission denied"
	case strings.Contains(err.Error(), "unhandled key type"), strings.Contains(err.Error(), "unsupported key type"):
		return "this type of key works only through an ssh-agent"
	}
	return err.Error()
}

// isDefaultName reports whether ssh tries a file by default. A missing default file is not reported.
func isDefaultName(file string) bool {
	for _, name := range []string{"rsa", "ecdsa", "ecdsa_sk", "ed25519", "ed25519_sk", "xmss", "dsa"} {
		if strings.HasSuffix(file, "/.ssh/id_"+name) {
			return true
		}
	}
	return false
}
