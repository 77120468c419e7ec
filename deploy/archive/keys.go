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

// Recipients returns the recipients of an export, for which it is encrypted: the public keys (of age or SSH) in keys,
// the public keys in files, and the passphrase unless it is empty.
func Recipients(keys, files []string, passphrase string) (out []age.Recipient, err error) {
	for _, key := range keys {
		r, err := parseRecipient(key)
		if err != nil {
			return nil, failure.NewUsage("--recipient: %w", err)
		}
		out = append(out, r)
	}
	for _, file := range files {
		if out, err = appendRecipients(out, file); err != nil {
			return nil, err
		}
	}
	if passphrase != "" {
		r, err := age.NewScryptRecipient(passphrase)
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

// parseRecipient parses a public key: of age (age1…) or of SSH (ssh-ed25519 …, ssh-rsa …). Its errors never contain
// text, because text could be a private key.
func parseRecipient(text string) (age.Recipient, error) {
	text = strings.TrimSpace(text)
	if strings.HasPrefix(text, "ssh-") {
		r, err := agessh.ParseRecipient(text)
		if err != nil {
			return nil, errors.New("it is not a public key of the types ssh-ed25519 and ssh-rsa")
		}
		return r, nil
	}
	found, err := age.ParseRecipients(strings.NewReader(text))
	switch {
	case strings.HasPrefix(text, "AGE-SECRET-KEY-"):
		return nil, errors.New("it is a private key; a recipient is the public key, which begins with age1 or ssh-")
	case err != nil || len(found) != 1:
		return nil, errors.New("it is not a recipient; a recipient is a public key that begins with age1, ssh-ed25519 or ssh-rsa")
	}
	return found[0], nil
}

// appendRecipients appends the recipients in a file: one per line, with comments that begin with #.
func appendRecipients(out []age.Recipient, file string) ([]age.Recipient, error) {
	data, err := durable.Read(file, durable.KeySize)
	if err != nil {
		return nil, failure.WithKind(failure.Usage, err)
	}
	before, number := len(out), 0
	for line := range strings.Lines(string(data)) {
		number++
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		r, err := parseRecipient(line)
		if err != nil {
			return nil, failure.NewUsage("%s, line %d: %w", file, number, err)
		}
		out = append(out, r)
	}
	if len(out) == before {
		return nil, failure.NewUsage("%s contains no recipient", file)
	}
	return out, nil
}

// Identities returns what can decrypt an export: the private keys (of age or SSH) in files, and the passphrase unless it is empty. If an
// encrypted SSH key in files is needed, the function ask asks the user for the passphrase of this key.
func Identities(files []string, passphrase string, ask func(question string) ([]byte, error)) (out []age.Identity, err error) {
	for _, file := range files {
		found, err := readIdentities(file, func() ([]byte, error) { return ask("passphrase of " + file) })
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	if passphrase != "" {
		id, err := age.NewScryptIdentity(passphrase)
		if err != nil {
			return nil, err
		}
		out = append(out, id)
	}
	return out, nil
}

// readIdentities reads the private keys in a file: keys of age, or one SSH key. If the SSH key is encrypted and needed,
// ask asks the user for its passphrase.
func readIdentities(file string, ask func() ([]byte, error)) ([]age.Identity, error) {
	data, err := durable.Read(file, durable.KeySize)
	if err != nil {
		return nil, failure.WithKind(failure.Usage, err)
	}
	if !bytes.HasPrefix(data, []byte("-----BEGIN")) {
		ids, err := age.ParseIdentities(bytes.NewReader(data))
		if err != nil { // err is not included: it could quote a private key
			return nil, failure.NewUsage("%s contains no identity of age (AGE-SECRET-KEY-…) and no private key of SSH; plugins of age are not supported", file)
		}
		return ids, nil
	}
	id, err := agessh.ParseIdentity(data)
	var locked *ssh.PassphraseMissingError
	if errors.As(err, &locked) && locked.PublicKey != nil {
		id, err = agessh.NewEncryptedSSHIdentity(locked.PublicKey, data, ask)
	}
	if err != nil {
		return nil, failure.NewUsage("%s is no private key of SSH of the types ed25519 and rsa that nixbench can read", file)
	}
	return []age.Identity{id}, nil
}

// ReadPassphrase reads the first line of a file.
func ReadPassphrase(file string) (string, error) {
	data, err := durable.Read(file, durable.KeySize)
	if err != nil {
		return "", failure.WithKind(failure.Usage, err)
	}
	line, _, _ := strings.Cut(string(data), "\n")
	if line = strings.TrimRight(line, "\r"); line == "" {
		return "", fmt.Errorf("%w: it is empty", failure.NewUsage("%s: the first line is the passphrase", file))
	}
	return line, nil
}
