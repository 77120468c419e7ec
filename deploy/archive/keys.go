package archive

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"filippo.io/age"
	"filippo.io/age/agessh"
	"golang.org/x/crypto/ssh"

	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/failure"
)

// Recipients returns the recipients of an export, for which it is encrypted: the public keys (of age or SSH) in keys, and those in
// files, which have one key per line, and comments that begin with #.
func Recipients(keys, files []string) (out []age.Recipient, err error) {
	add := func(where, key string) error {
		r, err := parseRecipient(key)
		if err != nil {
			return failure.NewUsage("%s: %w", where, err)
		}
		out = append(out, r)
		return nil
	}
	for _, key := range keys {
		if err := add("--recipient", key); err != nil {
			return nil, err
		}
	}
	for _, file := range files {
		data, err := durable.Read(file, durable.KeySize)
		if err != nil {
			return nil, failure.WithKind(failure.Usage, err)
		}
		for i, line := range strings.Split(string(data), "\n") {
			if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
				continue
			}
			if err := add(fmt.Sprintf("%s, line %d", file, i+1), line); err != nil {
				return nil, err
			}
		}
	}
	if len(out) == 0 {
		return nil, failure.NewUsage("there is no recipient: name public keys with --recipient or --recipients-file")
	}
	return out, nil
}

// parseRecipient parses a public key: of age (age1…) or of SSH (ssh-ed25519 …, ssh-rsa …). Its errors never contain
// text, because text could be a private key.
func parseRecipient(text string) (age.Recipient, error) {
	if r, err := agessh.ParseRecipient(text); err == nil {
		return r, nil
	}
	if found, err := age.ParseRecipients(strings.NewReader(text)); err == nil && len(found) == 1 {
		return found[0], nil
	}
	return nil, errors.New("it is not a recipient; a recipient is a public key that begins with age1, ssh-ed25519 or ssh-rsa")
}

// Identities returns what can decrypt an export: the private keys in files, each with keys of age or one SSH key. If an encrypted SSH
// key is needed, the function ask asks the user for the passphrase of this key.
func Identities(files []string, ask func(question string) ([]byte, error)) (out []age.Identity, err error) {
	for _, file := range files {
		data, err := durable.Read(file, durable.KeySize)
		if err != nil {
			return nil, failure.WithKind(failure.Usage, err)
		}
		found, err := parseIdentities(data, func() ([]byte, error) { return ask("passphrase of " + file) })
		if err != nil { // err is not included: it could quote a private key
			return nil, failure.NewUsage("%s contains no identity of age (AGE-SECRET-KEY-…) and no private key of SSH of the types ed25519 and rsa; plugins of age are not supported", file)
		}
		out = append(out, found...)
	}
	return out, nil
}

func parseIdentities(data []byte, ask func() ([]byte, error)) ([]age.Identity, error) {
	if !bytes.HasPrefix(data, []byte("-----BEGIN")) {
		return age.ParseIdentities(bytes.NewReader(data))
	}
	id, err := agessh.ParseIdentity(data)
	if locked := (*ssh.PassphraseMissingError)(nil); errors.As(err, &locked) && locked.PublicKey != nil {
		id, err = agessh.NewEncryptedSSHIdentity(locked.PublicKey, data, ask)
	}
	return []age.Identity{id}, err
}
