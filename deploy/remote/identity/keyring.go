package identity

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"sync"

	"golang.org/x/crypto/ssh"

	"github.com/nixbench/nixbench/deploy/durable"
)

// errNoPrompt means that an encrypted key cannot be opened because there is no Prompt.
var errNoPrompt = errors.New("encrypted, and there is no terminal to ask for its passphrase: add it to your ssh-agent")

// Prompt asks the user for a secret. The caller may overwrite the returned bytes.
type Prompt func(ctx context.Context, question string) ([]byte, error)

// Keyring caches decrypted private keys, so that the passphrase of a key is asked for once and
// not once per node. Pass the same Keyring to every Dial. The zero value works.
type Keyring struct {
	mu   sync.Mutex            // held while the user is asked for a passphrase, so that there is one question at a time
	keys map[string]ssh.Signer // file → decrypted key
}

// open returns the private key in a file. If the key is encrypted, the user is asked for its passphrase when a server
// accepts the key. The user is asked immediately if the public key cannot be read without the passphrase.
func (k *Keyring) open(ctx context.Context, file string, ask Prompt) (ssh.Signer, error) {
	k.mu.Lock()
	known := k.keys[file]
	k.mu.Unlock()
	if known != nil {
		return known, nil
	}
	pem, err := durable.Read(file, durable.KeySize)
	if err != nil {
		return nil, err
	}
	signer, err := ssh.ParsePrivateKey(pem)
	var locked *ssh.PassphraseMissingError
	if !errors.As(err, &locked) {
		return signer, err
	}
	if ask == nil {
		return nil, errNoPrompt
	}
	public := locked.PublicKey
	if public == nil {
		public, _ = readPublicKey(file + ".pub")
	}
	if public == nil {
		return k.unlock(ctx, file, pem, ask)
	}
	return &lockedKey{public: public, unlock: func() (ssh.Signer, error) { return k.unlock(ctx, file, pem, ask) }}, nil
}

// unlock decrypts a private key. It asks for the passphrase, three times at most.
func (k *Keyring) unlock(ctx context.Context, file string, pem []byte, ask Prompt) (ssh.Signer, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if known := k.keys[file]; known != nil {
		return known, nil
	}
	question := "passphrase for " + file
	var err error
	for range 3 {
		var passphrase []byte
		if passphrase, err = ask(ctx, question); err != nil {
			return nil, fmt.Errorf("ask for the passphrase of %s: %w", file, err)
		}
		var signer ssh.Signer
		signer, err = ssh.ParsePrivateKeyWithPassphrase(pem, passphrase)
		clear(passphrase)
		if err == nil {
			if k.keys == nil {
				k.keys = map[string]ssh.Signer{}
			}
			k.keys[file] = signer
			return signer, nil
		}
		question = "wrong passphrase, again for " + file
	}
	return nil, fmt.Errorf("open %s: %w", file, err)
}

// lockedKey is an encrypted private key whose public key is known. The private key is decrypted for
// the first signature, after the server has accepted the public key.
type lockedKey struct {
	public ssh.PublicKey
	unlock func() (ssh.Signer, error)
}

func (l *lockedKey) PublicKey() ssh.PublicKey { return l.public }

func (l *lockedKey) Sign(_ io.Reader, data []byte) (*ssh.Signature, error) {
	return l.SignWithAlgorithm(rand.Reader, data, "")
}

func (l *lockedKey) SignWithAlgorithm(_ io.Reader, data []byte, algorithm string) (*ssh.Signature, error) {
	signer, err := l.unlock()
	if err != nil {
		return nil, err
	}
	if with, ok := signer.(ssh.AlgorithmSigner); ok {
		return with.SignWithAlgorithm(rand.Reader, data, algorithm)
	}
	return signer.Sign(rand.Reader, data)
}

func readPublicKey(file string) (ssh.PublicKey, error) {
	data, err := durable.Read(file, durable.KeySize)
	if err != nil {
		return nil, err
	}
	key, _, _, _, err := ssh.ParseAuthorizedKey(data)
	return key, err
}
