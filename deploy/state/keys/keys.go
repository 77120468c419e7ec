// Package keys keeps the keys of nixbench itself in the state folder of a cluster, below `secrets/`: the SSH key with
// which nixbench logs in to the machines, the private host keys of the machines, and the key that authenticates plan
// files. For the keys that a hive deploys to its nodes (deployment.keys), see deploy/secrets.
package keys

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"al.essio.dev/pkg/shellescape"
	"golang.org/x/crypto/ssh"

	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/state"
)

// hostKeys returns the folder of the private host keys of machines. The names of the files are the names of the nodes.
func hostKeys(d state.Dir) string { return filepath.Join(string(d), "secrets", "hosts") }

type Key struct {
	Private []byte // in OpenSSH's PEM format
	Public  string // in the format of known_hosts and authorized_keys files
}

// MakeClientKey returns the client key, with which nixbench logs in to machines. If there is no key, it generates one.
// It fails if the key was lost and there may be machines that accept only the lost key.
func MakeClientKey(d state.Dir) (Key, error) {
	file := d.ClientKey()
	if !durable.Exists(file) && isClientKeyNeeded(d) {
		return Key{}, state.NewFileError(file, state.ErrMissing, fmt.Sprintf(
			"restore it from a backup: it is the key that the machines accept. Without one: make another (ssh-keygen -t ed25519 -N '' -f %s) and add %s to root's authorized keys on each machine, at its console or with a key of your own; "+
				"or remove the machines and all that is on their disks: nixbench destroy, which needs no key, then nixbench apply", shellescape.Quote(file), shellescape.Quote(file+".pub")))
	}
	return makeKey(d, file, "nixbench")
}

// MakeHostKey returns the host key of a node's machine. If there is none, it generates the key.
func MakeHostKey(d state.Dir, node string) (Key, error) {
	return makeKey(d, filepath.Join(hostKeys(d), node), node)
}

func RemoveHostKey(d state.Dir, node string) error { return d.Remove(filepath.Join(hostKeys(d), node)) }

// RemoveAll deletes all SSH keys. It is called when all machines have been removed.
func RemoveAll(d state.Dir) error {
	return errors.Join(d.Error(os.RemoveAll(hostKeys(d))), d.Remove(d.ClientKey()))
}

// RemoveSecrets deletes the generated secrets and these access files. It is called when all nodes have been removed.
func RemoveSecrets(d state.Dir, accessFiles ...string) error {
	errs := []error{d.Error(os.RemoveAll(d.Vault())), d.Error(os.RemoveAll(d.ForwardFolder()))}
	for _, name := range accessFiles {
		errs = append(errs, d.Remove(d.AccessFile(name)))
	}
	return errors.Join(errs...)
}

// makeKey reads a key from a file. If the file does not exist, makeKey generates a key and writes the file to the disk before it
// returns. Otherwise a power failure could lose a key that a machine already has, and nixbench could not log in to the machine.
func makeKey(d state.Dir, file, comment string) (Key, error) {
	data, err := durable.Read(file, durable.KeySize)
	if err == nil {
		return readKey(file, data)
	}
	if !errors.Is(err, os.ErrNotExist) {
		return Key{}, d.Error(err)
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
	if err := d.Write(file, data); err != nil {
		return Key{}, err
	}
	return readKey(file, data)
}

const planKeySize = 32

// planKeyFile returns the path of the key that authenticates plan files. Each computer has its own key.
func planKeyFile(d state.Dir) string { return filepath.Join(string(d), "secrets", "plan_key") }

// PlanKey returns the key that authenticates plan files, or nothing if there is none.
func PlanKey(d state.Dir) ([]byte, error) {
	key, err := durable.Read(planKeyFile(d), durable.KeySize)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, d.Error(err)
	case len(key) != planKeySize:
		return nil, state.NewFileError(planKeyFile(d), errors.New("it is not a key"), "remove it, and make plans again")
	}
	return key, nil
}

// MakePlanKey returns the key that authenticates plan files. If there is none, it generates the key.
func MakePlanKey(d state.Dir) ([]byte, error) {
	if key, err := PlanKey(d); err != nil || key != nil {
		return key, err
	}
	if err := d.Create(); err != nil {
		return nil, err
	}
	key := make([]byte, planKeySize)
	_, _ = rand.Read(key) // never fails
	return key, d.Write(planKeyFile(d), key)
}

func readKey(file string, data []byte) (Key, error) {
	signer, err := ssh.ParsePrivateKey(data)
	if err != nil {
		// err is not included, since it could quote the private key. A recreated machine gets another host key.
		return Key{}, state.NewFileError(file, errors.New("it is not a private key"), "restore it from a backup, or move it away: another one is made if no machine needs this one")
	}
	return Key{Private: data, Public: strings.TrimSpace(string(ssh.MarshalAuthorizedKey(signer.PublicKey())))}, nil
}

// isClientKeyNeeded reports whether machines may exist that accept only the current client key.
func isClientKeyNeeded(d state.Dir) bool {
	s, err := d.Load()
	if err != nil {
		return true
	}
	for _, m := range s.Machines {
		if m.Created != nil {
			return true
		}
	}
	return false
}
