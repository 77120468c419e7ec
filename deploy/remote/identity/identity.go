package identity

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
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
	cfg   sshconfig.Config
	pause func() (resume func()) // stops the clock of the time limit while the user touches a key, or answers the agent

	Signers []ssh.Signer
	Tried   []string // each offered key, and each configured key with the reason why it is not offered
	SignErr error    // the error of a signature with a key that the server has accepted
}

// Load reads the keys that a login at a host offers. pause stops the time limit of the login during a signature, for which the user
// may have to touch a hardware key. The caller must call closeAgent after the login, because the keys of the agent need the
// connection to the agent.
func Load(ctx context.Context, cfg sshconfig.Config, pause func() (resume func())) (id *Login, closeAgent func()) {
	id = &Login{cfg: cfg, pause: pause}
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
	for _, file := range id.cfg.IdentityFiles {
		err := id.offerFile(file, fromAgent, certificates)
		if err != nil && !(errors.Is(err, os.ErrNotExist) && defaultName.MatchString(file)) {
			id.Tried = append(id.Tried, fmt.Sprintf("%s (%v)", file, shortKeyError(err)))
		}
	}
	if id.cfg.IdentitiesOnly {
		return id, closeAgent
	}
	for _, signer := range fromAgent {
		if findKey(id.Signers, signer.PublicKey()) == nil {
			id.offer(signer.PublicKey(), "agent key "+ssh.FingerprintSHA256(signer.PublicKey()), signer)
		}
	}
	return id, closeAgent
}

// offerFile adds the key of an IdentityFile, and before it the key's certificates. The private key is from the agent if the agent
// has it, and otherwise from the file.
func (id *Login) offerFile(file string, fromAgent []ssh.Signer, certificates []*ssh.Certificate) error {
	public, err := readPublicKey(strings.TrimSuffix(file, ".pub") + ".pub")
	if err != nil {
		public, _ = readPublicKey(file) // IdentityFile may itself be a public key, without the suffix .pub
	}
	var signer ssh.Signer
	pem, err := durable.Read(file, durable.KeySize)
	if err == nil {
		signer, err = ssh.ParsePrivateKey(pem)
	}
	if locked := (*ssh.PassphraseMissingError)(nil); public == nil && errors.As(err, &locked) {
		public = locked.PublicKey
	} else if public == nil && err == nil {
		public = signer.PublicKey()
	}
	name := file
	if agentKey := findKey(fromAgent, public); agentKey != nil {
		signer, name = agentKey, file+" from the agent"
	} else if err != nil {
		return err
	}
	for _, cert := range certificates {
		if bytes.Equal(cert.Key.Marshal(), public.Marshal()) {
			id.offer(cert, file+" with its certificate", signer)
		}
	}
	id.offer(public, name, signer)
	return nil
}

// findKey returns the key in a list that has the given public key, or nil.
func findKey(keys []ssh.Signer, public ssh.PublicKey) ssh.Signer {
	for _, k := range keys {
		if public != nil && bytes.Equal(k.PublicKey().Marshal(), public.Marshal()) {
			return k
		}
	}
	return nil
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

// offer adds a key to the list of keys that are offered to the server. public may be a certificate of the key.
func (id *Login) offer(public ssh.PublicKey, name string, signer ssh.Signer) {
	id.Signers = append(id.Signers, &offeredKey{id, name, public, signer})
	id.Tried = append(id.Tried, name)
}

// offeredKey is a key that is offered to the server. It keeps the error of a signature, because x/crypto does not return it.
type offeredKey struct {
	login  *Login
	name   string
	public ssh.PublicKey
	signer ssh.Signer
}

func (k *offeredKey) PublicKey() ssh.PublicKey { return k.public }

func (k *offeredKey) Sign(rand io.Reader, data []byte) (*ssh.Signature, error) {
	return k.SignWithAlgorithm(rand, data, "")
}

func (k *offeredKey) SignWithAlgorithm(rand io.Reader, data []byte, algorithm string) (sig *ssh.Signature, err error) {
	defer k.login.pause()()
	if with, ok := k.signer.(ssh.AlgorithmSigner); ok {
		sig, err = with.SignWithAlgorithm(rand, data, algorithm)
	} else {
		sig, err = k.signer.Sign(rand, data)
	}
	if err != nil {
		k.login.SignErr = fmt.Errorf("%s: %w", k.name, err)
	}
	return sig, err
}

func readPublicKey(file string) (ssh.PublicKey, error) {
	data, err := durable.Read(file, durable.KeySize)
	if err != nil {
		return nil, err
	}
	key, _, _, _, err := ssh.ParseAuthorizedKey(data)
	return key, err
}

// shortKeyError returns a short text for the error of reading a key file.
func shortKeyError(err error) string {
	switch {
	case errors.As(err, new(*ssh.PassphraseMissingError)):
		return "encrypted; add it to your ssh-agent with ssh-add"
	case errors.Is(err, os.ErrNotExist):
		return "no such file"
	case errors.Is(err, os.ErrPermission):
		return "permission denied"
	case strings.Contains(err.Error(), "unhandled key type"), strings.Contains(err.Error(), "unsupported key type"):
		return "this type of key works only through an ssh-agent"
	}
	return err.Error()
}

// defaultName matches the key files that ssh tries by default, such as ~/.ssh/id_rsa. If such a file is missing, the error of the
// login does not list it.
var defaultName = regexp.MustCompile(`/\.ssh/id_(rsa|dsa|xmss|(ecdsa|ed25519)(_sk)?)$`)
