package archive

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
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

// Import decrypts file and replaces the state by its contents. Without force, Import fails if the state in the folder has changes that
// the export lacks. If both states are equal, nothing changes. Records of runs in the export are added to the folder.
func Import(ctx context.Context, lock *state.Lock, cluster, file string, force bool, identities []age.Identity) (*Result, error) {
	f, _, err := durable.Open(file)
	if err != nil {
		return nil, failure.WithKind(failure.Usage, err)
	}
	defer f.Close()
	plain, err := age.Decrypt(f, identities...)
	if err != nil {
		return nil, describeDecrypt(file, err)
	}
	dir := lock.Dir()
	imported := dir.Staging()
	defer os.RemoveAll(string(imported)) // remove the folder after a failure
	r := &Result{}
	if err := r.stage(ctx, tar.NewReader(plain), imported, cluster, file); err != nil {
		return nil, err
	}
	if _, err = io.Copy(io.Discard, plain); err != nil { // read to the end, because only the end proves that the file is complete
		return nil, damaged(file, err)
	}
	if err := r.decide(dir, imported, file, force); err != nil || !r.Changed {
		return r, err
	}
	obsolete, err := contents(dir, false)
	if err != nil {
		return nil, err
	}
	obsolete = slices.DeleteFunc(obsolete, func(name string) bool { return durable.Exists(filepath.Join(string(imported), name)) })
	if err := writeDigests(imported, r.States); err != nil {
		return nil, err
	}
	return r, lock.Replace(obsolete)
}

// stage writes the files of an export to the folder of the imported state.
func (r *Result) stage(ctx context.Context, in *tar.Reader, imported state.Dir, cluster, file string) error {
	left, written := int64(maxBytes), map[string]bool{}
	refuse := func(err error) error {
		return failure.WithHint(failure.NewUsage("%s: %w; nothing was imported", file, err), failure.Hint(err))
	}
	for count := 0; ; count++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		h, err := in.Next()
		if errors.Is(err, io.EOF) && count > 0 {
			break
		}
		if err != nil {
			return damaged(file, err)
		}
		if left -= h.Size; h.Typeflag != tar.TypeReg || count > maxFiles || left < 0 {
			return failure.NewUsage("%s: it contains %q, which is not a regular file, or more than %d files or %d GiB; nothing was imported", file, h.Name, maxFiles, maxBytes>>30)
		}
		data, err := durable.ReadAll(in, durable.RecordSize)
		if err != nil {
			return damaged(file, err)
		}
		if count == 0 {
			if err := r.readHeader(h.Name, data, cluster); err != nil {
				return refuse(err)
			}
			continue
		}
		if err := checkContent(h.Name); err != nil {
			return refuse(err)
		}
		if written[h.Name] {
			return refuse(fmt.Errorf("it contains the file %q twice", h.Name))
		}
		written[h.Name] = true
		if h.Name == "state.json" {
			if _, err := state.Decode("its state.json", data); err != nil {
				return refuse(err)
			}
		}
		if err := put(imported, h.Name, data); err != nil {
			return err
		}
		r.count(h.Name)
	}
	if !written["state.json"] {
		return refuse(errors.New("it contains no state.json"))
	}
	return nil
}

func put(d state.Dir, name string, data []byte) error {
	file := filepath.Join(string(d), name)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return &state.FolderError{Dir: d, Err: err}
	}
	return d.Write(file, data)
}

// readHeader decodes the header, which must be the first file of an export, into r. It returns an error if this
// nixbench cannot read the version, or if the export is of another cluster.
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

// decide checks the digest of the imported state, and compares it with the digest of the old state. It sets r.Changed if the import
// changes the folder. Unless force is set, it returns an error if the old state has changes that the imported state lacks.
func (r *Result) decide(old, imported state.Dir, file string, force bool) error {
	newest := r.States[len(r.States)-1]
	if digest, err := computeDigest(imported); err != nil || digest != newest {
		return errors.Join(err, failure.NewUsage("%s: its files do not have the digest that it contains; nothing was imported", file))
	}
	now, err := computeDigest(old)
	if err != nil {
		return err
	}
	before, err := readDigests(old)
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
		return newConflict("%s is older than the state in %s", file, old)
	}
	return newConflict("the state in %s has changes that %s lacks", old, file)
}

// missingRecords reports whether the folder imported has a record of a run that the folder old lacks.
func missingRecords(old, imported state.Dir) (bool, error) {
	files, err := contents(imported, true)
	return slices.ContainsFunc(files, func(name string) bool {
		return isRecord(name) && !durable.Exists(filepath.Join(string(old), name))
	}), err
}

// newConflict returns the error for an import that would lose changes of the state in the folder.
func newConflict(format string, args ...any) error {
	return failure.WithHint(failure.NewUsage(format+"; nothing was imported", args...),
		"nixbench state export saves the state here; --force replaces it, and machines that only it has are then unknown")
}

func damaged(file string, err error) error {
	return failure.WithHint(failure.NewUsage("%s is damaged: %w; nothing was imported", file, err), "copy it again, or export it again")
}

// describeDecrypt returns the error for a file that cannot be decrypted.
func describeDecrypt(file string, err error) error {
	var none *age.NoIdentityMatchError
	if !errors.As(err, &none) {
		return failure.NewUsage("%s cannot be decrypted: %w", file, err)
	}
	if slices.Contains(none.StanzaTypes, "scrypt") {
		return failure.WithHint(failure.NewUsage("%s cannot be decrypted: it is encrypted with a passphrase, and the given one is another or none was given", file),
			"--passphrase asks for it, --passphrase-file reads it")
	}
	return failure.WithHint(failure.NewUsage("%s cannot be decrypted: it is not encrypted to any of the given identities, but to %d others (%s)",
		file, len(none.StanzaTypes), strings.Join(none.StanzaTypes, ", ")), "--identity names the file of your private key; the exporter needs its public key as --recipient")
}
