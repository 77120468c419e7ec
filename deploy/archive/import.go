package archive

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"filippo.io/age"

	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/state"
)

// Limits of the files in an export.
const (
	maxFiles = 200_000
	maxBytes = 8 << 30
)

// Import decrypts file and replaces the state in dir by its contents. The caller holds the lock of dir. Without force,
// Import fails if the state in dir has changes that the export lacks. If both states are equal, nothing changes.
// Records of runs are added.
func Import(ctx context.Context, lock *state.Lock, dir state.Dir, cluster, file string, force bool, identities []age.Identity) (*Result, error) {
	f, _, err := durable.Open(file)
	if err != nil {
		return nil, failure.WithKind(failure.Usage, err)
	}
	defer f.Close()
	plain, err := age.Decrypt(f, identities...)
	if err != nil {
		return nil, describeDecrypt(file, err)
	}
	staged, err := lock.BeginImport()
	if err != nil {
		return nil, err
	}
	r, err := stage(ctx, tar.NewReader(plain), staged, cluster, file)
	if err == nil {
		if _, err = io.Copy(io.Discard, plain); err != nil { // the end of the file proves that it is complete
			err = damaged(file, err)
		}
	}
	if err == nil {
		err = r.decide(dir, staged.New(), file, force)
	}
	if err == nil && r.Changed {
		return r, staged.Commit(r.States)
	}
	return r, errors.Join(err, staged.Discard())
}

// stage writes the files of an export to the hidden folder of an import.
func stage(ctx context.Context, in *tar.Reader, staged *state.Import, cluster, file string) (*Result, error) {
	r, left := &Result{}, int64(maxBytes)
	for count := 0; ; count++ {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		h, err := in.Next()
		if errors.Is(err, io.EOF) && count > 0 {
			break
		}
		if err != nil {
			return nil, damaged(file, err)
		}
		if left -= h.Size; h.Typeflag != tar.TypeReg || count > maxFiles || left < 0 {
			return nil, usage("%s: it contains %q, which is not a regular file, or more than %d files or %d GiB; nothing was imported", file, h.Name, maxFiles, maxBytes>>30)
		}
		data, err := durable.ReadAll(in, durable.RecordSize)
		if err != nil {
			return nil, damaged(file, err)
		}
		if count == 0 {
			if err := r.readHeader(h.Name, data, cluster); err != nil {
				return nil, usage("%s: %w; nothing was imported", file, err)
			}
			continue
		}
		if err := staged.Add(h.Name, data); err != nil {
			if failure.KindOf(err) == failure.StateFolder {
				return nil, err
			}
			return nil, usage("%s: %w; nothing was imported", file, err)
		}
		r.count(h.Name)
	}
	if err := staged.Check(); err != nil {
		return nil, failure.WithHint(usage("%s: %w; nothing was imported", file, err), failure.Hint(err))
	}
	return r, nil
}

func (r *Result) readHeader(name string, data []byte, cluster string) error {
	if name != headerName {
		return fmt.Errorf("it does not begin with %s, so it is not an export of nixbench", headerName)
	}
	if err := json.Unmarshal(data, &r.Header); err != nil {
		return fmt.Errorf("%s: %w", headerName, err)
	}
	switch {
	case r.Version != formatVersion:
		return fmt.Errorf("it has version %d, and this nixbench reads version %d", r.Version, formatVersion)
	case r.Cluster != cluster:
		return fmt.Errorf("it is the state of cluster %s, and the hive is that of cluster %s", r.Cluster, cluster)
	case len(r.States) == 0:
		return fmt.Errorf("%s has no digest", headerName)
	}
	return nil
}

// decide compares the digests of the old and the new state, and sets r.Changed.
func (r *Result) decide(old, imported state.Dir, file string, force bool) error {
	newest := r.States[len(r.States)-1]
	if digest, err := state.Digest(imported); err != nil || digest != newest {
		return errors.Join(err, usage("%s: its files do not have the digest that it contains; nothing was imported", file))
	}
	now, err := state.Digest(old)
	if err != nil {
		return err
	}
	before, err := state.Exports(old)
	if err != nil && !force {
		return err
	}
	missing, err := missingRecords(old, imported)
	if err != nil {
		return err
	}
	r.Changed = now != newest || missing
	switch {
	case force, now == "", slices.Contains(r.States, now):
		return nil
	case slices.Contains(before, newest):
		return &ConflictError{file, old, fmt.Sprintf("%s is older than the state in %s", file, old)}
	}
	return &ConflictError{file, old, fmt.Sprintf("the state in %s has changes that %s lacks", old, file)}
}

// missingRecords reports whether the new folder has a record that the old one lacks.
func missingRecords(old, imported state.Dir) (bool, error) {
	have, err := state.Contents(old, true)
	if err != nil {
		return false, err
	}
	want, err := state.Contents(imported, true)
	return slices.ContainsFunc(want, func(name string) bool {
		_, found := slices.BinarySearch(have, name)
		return strings.HasPrefix(name, "runs/") && !found
	}), err
}

// ConflictError means that an import would lose changes of the state in the folder.
type ConflictError struct {
	File    string
	Dir     state.Dir
	message string
}

func (e *ConflictError) Error() string { return e.message + "; nothing was imported" }

// Kind implements [failure.Classified].
func (e *ConflictError) Kind() failure.Kind { return failure.Usage }

// Hint returns what the user can do.
func (e *ConflictError) Hint() string {
	return "nixbench state export saves the state here; --force replaces it, and machines that only it has are then unknown"
}

func damaged(file string, err error) error {
	return failure.WithHint(usage("%s is damaged: %w; nothing was imported", file, err), "copy it again, or export it again")
}

// describeDecrypt returns the error for a file that cannot be decrypted.
func describeDecrypt(file string, err error) error {
	var none *age.NoIdentityMatchError
	if !errors.As(err, &none) {
		return usage("%s cannot be decrypted: %w", file, err)
	}
	if slices.Contains(none.StanzaTypes, "scrypt") {
		return failure.WithHint(usage("%s cannot be decrypted: it is encrypted with a passphrase, and the given one is another or none was given", file),
			"--passphrase asks for it, --passphrase-file reads it")
	}
	return failure.WithHint(usage("%s cannot be decrypted: it is not encrypted to any of the given identities, but to %d others (%s)",
		file, len(none.StanzaTypes), strings.Join(none.StanzaTypes, ", ")), "--identity names the file of your private key; the exporter needs its public key as --recipient")
}
