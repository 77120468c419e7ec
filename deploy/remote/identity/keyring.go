package identity

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/crypto/ssh"
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
