package identity

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
	"github.com/nixbench/nixbench/deploy/remote/sshconfig"
)

// Login is the list of keys that a login offers, in OpenSSH's order: first the keys of
// IdentityFiles, then the other keys of the agent. The order matters, because sshd refuses a login
// after six keys.
type Login struct {
	cfg     sshconfig.Config
	keyring *Keyring
	ask     Prompt
	pause   func() (resume func()) // stops the clock of the time limit while the user types a passphrase or touches a key

	Signers []ssh.Signer
	Tried   []string // each offered key, and each configured key with the reason why it is not offered
	SignErr error    // the error of a signature with a key that the server has accepted
}

// Load reads the keys that a login at a host offers. ask may be nil. pause stops the time limit of the login; it is
// called when the user must type a passphrase or touch a hardware key. The caller must call closeAgent after the login,
// because the keys of the agent need the connection to the agent.
func Load(ctx context.Context, cfg sshconfig.Config, keyring *Keyring, ask Prompt, pause func() (resume func())) (id *Login, closeAgent func()) {
	id = &Login{cfg: cfg, keyring: keyring, pause: pause}
	if ask != nil {
		id.ask = func(ctx context.Context, question string) ([]byte, error) {
			defer pause()()
			return ask(ctx, question)
		}
	}
	closeAgent = func() {}
	var fromAgent []ssh.Signer
	if socket := id.cfg.IdentityAgent; socket != "" {
		limited, cancel := context.WithTimeout(ctx, 5*time.Second)
		conn, err := (&net.Dialer{}).DialContext(limited, "unix", socket)
		cancel()
		if err == nil {
			// Close the connection when ctx ends: an agent that does not answer must not delay a
			// cancellation.
			stop := context.AfterFunc(ctx, func() { conn.Close() })
			closeAgent = func() { stop(); conn.Close() }
			conn.SetDeadline(time.Now().Add(5 * time.Second))
			fromAgent, err = agent.NewClient(conn).Signers()
			conn.SetDeadline(time.Now().Add(2 * time.Minute)) // a long time limit, because a hardware key may wait for a touch
		}
		if err != nil {
			id.Tried = append(id.Tried, fmt.Sprintf("agent %s (%v)", socket, err))
		}
	}
	certificates := id.readCertificates()
	used := map[int]bool{}
	for _, file := range id.cfg.IdentityFiles {
		signer, from, err := id.findKey(ctx, file, fromAgent, used)
		if errors.Is(err, os.ErrNotExist) && isDefaultName(file) {
			continue
		}
		if err != nil {
			id.Tried = append(id.Tried, fmt.Sprintf("%s (%v)", file, shortKeyError(err)))
			continue
		}
		for _, cert := range certificates {
			if bytes.Equal(cert.Key.Marshal(), signer.PublicKey().Marshal()) {
				if with, err := ssh.NewCertSigner(cert, signer); err == nil {
					id.addOffered(with, file+" with its certificate")
				}
			}
		}
		id.addOffered(signer, from)
	}
	if id.cfg.IdentitiesOnly {
		return id, closeAgent
	}
	for i, signer := range fromAgent {
		if !used[i] {
			id.addOffered(signer, "agent key "+ssh.FingerprintSHA256(signer.PublicKey()))
		}
	}
	return id, closeAgent
}

// findKey returns the key of an IdentityFile, from the agent if the agent has the key, and otherwise from the file. It also returns a
// description of the key. If the key is from the agent, findKey sets used for the index of the key in fromAgent.
func (id *Login) findKey(ctx context.Context, file string, fromAgent []ssh.Signer, used map[int]bool) (ssh.Signer, string, error) {
	public, err := readPublicKey(strings.TrimSuffix(file, ".pub") + ".pub")
	if err != nil {
		public, _ = readPublicKey(file) // IdentityFile may itself be a public key, without the suffix .pub
	}
	if public == nil {
		public = readPublicHalf(file)
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

// readPublicHalf returns the public key of a private key's file, without asking for a passphrase. It returns nil if it
// cannot read a public key from the file.
func readPublicHalf(file string) ssh.PublicKey {
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

// readCertificates returns the certificates in CertificateFiles and, as ssh does, in KEY-cert.pub of
// each IdentityFile.
func (id *Login) readCertificates() []*ssh.Certificate {
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
			id.Tried = append(id.Tried, fmt.Sprintf("certificate %s (%v)", file, shortKeyError(err)))
		}
	}
	for _, file := range id.cfg.IdentityFiles {
		_ = read(file + "-cert.pub") // most keys have no certificate
	}
	return certs
}

// addOffered adds a key to the list of keys that are offered to the server.
func (id *Login) addOffered(signer ssh.Signer, name string) {
	id.Signers = append(id.Signers, &errorKeepingKey{Signer: signer, pause: id.pause, failed: func(err error) {
		id.SignErr = fmt.Errorf("%s: %w", name, err)
	}})
	id.Tried = append(id.Tried, name)
}

// errorKeepingKey is a private key that passes an error of signing to the function failed, because x/crypto does not
// return that error. It pauses the time limit of the login while it signs.
type errorKeepingKey struct {
	ssh.Signer
	pause  func() (resume func())
	failed func(error)
}

func (w *errorKeepingKey) SignWithAlgorithm(rand io.Reader, data []byte, algorithm string) (sig *ssh.Signature, err error) {
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

// shortKeyError returns a short text for the error of reading a key file.
func shortKeyError(err error) string {
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

// isDefaultName reports whether ssh tries the key file by default, such as ~/.ssh/id_rsa. If such a file is missing,
// the error of the login does not list it.
func isDefaultName(file string) bool {
	for _, name := range []string{"rsa", "ecdsa", "ecdsa_sk", "ed25519", "ed25519_sk", "xmss", "dsa"} {
		if strings.HasSuffix(file, "/.ssh/id_"+name) {
			return true
		}
	}
	return false
}
