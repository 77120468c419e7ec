package state

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/nixbench/nixbench/deploy/durable"
)

// ClientKey returns the path of the private key with which nixbench logs in to the cluster's machines.
func (d Dir) ClientKey() string { return filepath.Join(string(d), "secrets", "id_ed25519") }

// KnownHosts returns the path of the known_hosts file for OpenSSH's client.
func (d Dir) KnownHosts() string { return filepath.Join(string(d), "known_hosts") }

// Vault returns the folder of the secrets that nixbench generates for deployment.keys.
func (d Dir) Vault() string { return filepath.Join(string(d), "secrets", "generated") }

// AccessFile returns the path of a file with the credentials of the cluster's administrator. The engine of the cluster
// determines its name.
func (d Dir) AccessFile(name string) string { return filepath.Join(string(d), name) }

// ForwardFolder returns the folder of access files that exist while nixbench forwards the API of a cluster.
func (d Dir) ForwardFolder() string { return filepath.Join(string(d), "secrets", "forward") }

// hostKeyFile returns the path of the private host key of a node's machine.
func (d Dir) hostKeyFile(node string) string {
	return filepath.Join(string(d), "secrets", "hosts", node)
}

// Key is an SSH key pair.
type Key struct {
	Private []byte // in OpenSSH's PEM format
	Public  string // in the format of known_hosts and authorized_keys files
}

// MakeClientKey returns the client key, and generates it if there is none. It fails if the key is lost
// and machines may exist that accept only the lost key.
func (d Dir) MakeClientKey() (Key, error) {
	if !exists(d.ClientKey()) && d.isClientKeyNeeded() {
		return Key{}, d.newKeyLostError(errMissing)
	}
	key, err := d.makeKey(d.ClientKey(), "nixbench")
	if f := (*FileError)(nil); errors.As(err, &f) && d.isClientKeyNeeded() {
		return key, d.newKeyLostError(f.Err)
	}
	return key, err
}

// MakeHostKey returns the host key of a node's machine, and generates it if there is none.
func (d Dir) MakeHostKey(node string) (Key, error) { return d.makeKey(d.hostKeyFile(node), node) }

// RemoveHostKey deletes the host key of a machine that has been removed.
func (d Dir) RemoveHostKey(node string) error { return d.remove(d.hostKeyFile(node)) }

// RemoveKeys deletes all SSH keys and known_hosts. It is called when all machines have been removed.
func (d Dir) RemoveKeys() error {
	hosts := filepath.Join(string(d), "secrets", "hosts")
	if err := os.RemoveAll(hosts); err != nil {
		return &FolderError{d, err}
	}
	return errors.Join(d.remove(d.ClientKey()), d.remove(d.KnownHosts()))
}

// RemoveSecrets deletes the generated secrets and the access files with the given names. It is called when all
// nodes have been removed.
func (d Dir) RemoveSecrets(accessFiles ...string) error {
	for _, folder := range []string{d.Vault(), d.ForwardFolder()} {
		if err := os.RemoveAll(folder); err != nil {
			return &FolderError{d, err}
		}
	}
	var errs []error
	for _, name := range accessFiles {
		errs = append(errs, d.remove(d.AccessFile(name)))
	}
	return errors.Join(errs...)
}

func (d Dir) remove(file string) error {
	if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
		return &FolderError{d, err}
	}
	return nil
}

// makeKey reads a key from a file. If the file does not exist, makeKey generates a key and writes the
// file durably before it returns: if a machine got a key that is then lost, nixbench could not log
// in to the machine.
func (d Dir) makeKey(file, comment string) (Key, error) {
	data, err := durable.Read(file, durable.KeySize)
	if err == nil {
		return readKey(file, data)
	}
	if !errors.Is(err, os.ErrNotExist) {
		return Key{}, &FolderError{d, err}
	}
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return Key{}, err
	}
	block, err := ssh.MarshalPrivateKey(private, comment)
	if err != nil {
		return Key{}, err
	}
	data = pem.EncodeToMemory(block)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return Key{}, &FolderError{d, err}
	}
	if err := d.write(file, data); err != nil {
		return Key{}, err
	}
	return readKey(file, data)
}

// planKeySize is the number of bytes of a plan key.
const planKeySize = 32

// planKeyFile returns the path of the key that authenticates plan files. Another computer has another one.
func (d Dir) planKeyFile() string { return filepath.Join(string(d), planKeyName) }

const planKeyName = "secrets/plan_key"

// PlanKey returns the key that authenticates plan files, or nothing if there is none.
func (d Dir) PlanKey() ([]byte, error) {
	key, err := durable.Read(d.planKeyFile(), durable.KeySize)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, &FolderError{d, err}
	case len(key) != planKeySize:
		return nil, &FileError{File: d.planKeyFile(), Err: errors.New("it is not a key"), Fix: "remove it, and make plans again"}
	}
	return key, nil
}

// MakePlanKey is like PlanKey, and generates the key if there is none.
func (d Dir) MakePlanKey() ([]byte, error) {
	if key, err := d.PlanKey(); err != nil || key != nil {
		return key, err
	}
	if err := d.Create(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(d.planKeyFile()), 0o700); err != nil {
		return nil, &FolderError{d, err}
	}
	key := make([]byte, planKeySize)
	_, _ = rand.Read(key) // never fails
	return key, d.write(d.planKeyFile(), key)
}

func readKey(file string, data []byte) (Key, error) {
	signer, err := ssh.ParsePrivateKey(data)
	if err != nil {
		// err is not included, since it could quote the private key. A recreated machine gets another host key.
		return Key{}, &FileError{File: file, Err: errors.New("it is not a private key"),
			Fix: "restore it from a backup, or move it away: another one is made when it is needed"}
	}
	return Key{Private: data, Public: strings.TrimSpace(string(ssh.MarshalAuthorizedKey(signer.PublicKey())))}, nil
}

// WriteFacts writes runtime.json and known_hosts. A file whose content would not change is not
// written.
func (d Dir) WriteFacts(runtime []byte, machines map[string]Machine) error {
	var known strings.Builder
	for _, node := range sortedKeys(machines) {
		if key := machines[node].HostKey; key != "" {
			fmt.Fprintf(&known, "%s %s\n", node, key)
		}
	}
	if err := d.Create(); err != nil {
		return err
	}
	for file, data := range map[string][]byte{d.Facts(): runtime, d.KnownHosts(): []byte(known.String())} {
		if old, err := durable.Read(file, durable.ConfigSize); err == nil && bytes.Equal(old, data) {
			continue
		}
		if err := d.write(file, data); err != nil {
			return err
		}
	}
	return nil
}

// RemoveFacts deletes runtime.json and known_hosts. It is called when there are no machines.
func (d Dir) RemoveFacts() error { return errors.Join(d.remove(d.Facts()), d.remove(d.KnownHosts())) }

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
