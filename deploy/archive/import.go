package archive

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"filippo.io/age"

	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/state"
)

// Import decrypts file and replaces the state by its contents. Without force, Import fails if the state in the folder has changed since
// it was last exported or imported. If both states are equal, nothing changes.
func Import(lock *state.Lock, cluster, file string, force bool, identities []age.Identity) (*Result, error) {
	f, _, err := durable.Open(file)
	if err != nil {
		return nil, failure.WithKind(failure.Usage, err)
	}
	defer f.Close()
	plain, err := age.Decrypt(f, identities...)
	if none := (*age.NoIdentityMatchError)(nil); errors.As(err, &none) {
		return nil, failure.WithHint(failure.NewUsage("%s cannot be decrypted: it is not encrypted to any of the given identities, but to %d others (%s)",
			file, len(none.StanzaTypes), strings.Join(none.StanzaTypes, ", ")), "--identity names the file of your private key; the exporter needs its public key as --recipient")
	}
	if err != nil {
		return nil, failure.NewUsage("%s cannot be decrypted: %w", file, err)
	}
	c, err := decode(plain, cluster)
	if err != nil {
		return nil, failure.WithHint(failure.NewUsage("%s: %w; nothing was imported", file, err), failure.Hint(err))
	}
	old, err := readFiles(lock.Dir())
	if err != nil {
		return nil, err
	}
	r := &Result{Header: c.Header, Files: len(c.Files), Changed: old.digest() != c.Files.digest()}
	switch {
	case !r.Changed:
		return r, c.Files.recordExchange(lock.Dir())
	case force, len(old) == 0, old.isExchanged(lock.Dir()):
		return r, replaceFiles(lock.Dir(), old, c.Files)
	}
	return nil, failure.WithHint(failure.NewUsage("the state in %s has changed since it was last exported or imported; nothing was imported", lock.Dir()),
		"nixbench state export saves the state here; --force replaces it, and machines that only it has are then unknown")
}

// replaceFiles deletes the old files that the export lacks, and writes the files of the export. It writes state.json last: if it is
// interrupted before, the next import with --force continues.
func replaceFiles(dir state.Dir, old, imported files) error {
	for name := range old {
		if imported[name] == nil {
			if err := dir.Remove(filepath.Join(string(dir), name)); err != nil {
				return err
			}
		}
	}
	write := func(name string) error { return dir.Write(filepath.Join(string(dir), name), imported[name]) }
	for name := range imported {
		if name != stateFile {
			if err := write(name); err != nil {
				return err
			}
		}
	}
	if err := write(stateFile); err != nil {
		return err
	}
	return imported.recordExchange(dir)
}

const stateFile = "state.json"

// decode reads the content of an export, which is input and may be malicious, and checks it.
func decode(in io.Reader, cluster string) (*content, error) {
	data, err := durable.ReadAll(in, durable.RecordSize)
	if err != nil {
		return nil, failure.WithHint(fmt.Errorf("it is damaged: %w", err), "copy it again, or export it again")
	}
	var c content
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, fmt.Errorf("it is not an export of nixbench: %w", err)
	}
	switch {
	case c.Version != formatVersion:
		return nil, fmt.Errorf("it has version %d, and this nixbench reads version %d", c.Version, formatVersion)
	case c.Cluster != cluster:
		return nil, fmt.Errorf("it is the state of cluster %s, and the hive is that of cluster %s", c.Cluster, cluster)
	case c.Files[stateFile] == nil:
		return nil, errors.New("it contains no state.json")
	}
	for name := range c.Files {
		if err := checkPath(name); err != nil {
			return nil, err
		}
	}
	_, err = state.Decode("its state.json", c.Files[stateFile])
	return &c, err
}
