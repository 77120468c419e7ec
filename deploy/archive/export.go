package archive

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"filippo.io/age"

	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/state"
)

const (
	formatVersion = 1
	headerName    = "export.json"
	ageIntro      = "age-encryption.org/v1\n" // the first line of a file that age has encrypted
)

// Header describes an export.
type Header struct {
	Version  int       `json:"version"`
	Cluster  string    `json:"cluster"`
	Exported time.Time `json:"exported"`
	By       string    `json:"by"`     // user and host
	States   []string  `json:"states"` // digests of earlier states; the last element is the digest of this state
}

// Result describes what was exported or imported.
type Result struct {
	Header
	Files   int  `json:"files"`   // files of the state
	Records int  `json:"records"` // files of records of runs
	Changed bool `json:"changed"` // false if an import changed nothing, because the folder had the same state
}

// Export encrypts the state to recipients and writes it to file. If runs is set, the file includes the records of runs.
// An existing file is replaced only if it is encrypted with age.
func Export(ctx context.Context, lock *state.Lock, cluster, file string, runs bool, recipients []age.Recipient) (*Result, error) {
	if err := checkTarget(file); err != nil {
		return nil, err
	}
	dir := lock.Dir()
	names, err := contents(dir, runs)
	if err != nil {
		return nil, err
	}
	if s, err := dir.Load(); err != nil { // this also fails if state.json is damaged
		return nil, err
	} else if len(names) == 0 || s.Cluster == nil && len(s.Nodes) == 0 {
		return nil, failure.WithHint(failure.NewUsage("there is no state of %s in %s", cluster, dir), "nixbench apply creates it")
	}
	holder := state.Self("state export")
	r := &Result{Changed: true}
	r.Header = Header{Version: formatVersion, Cluster: cluster, Exported: holder.Started, By: holder.User + "@" + holder.Host}
	if r.States, err = recordDigest(dir); err != nil {
		return nil, err
	}
	err = durable.WriteFrom(file, func(w io.Writer) error {
		encrypted, err := age.Encrypt(w, recipients...)
		if err != nil {
			return fmt.Errorf("encrypt %s: %w", file, err)
		}
		return errors.Join(r.write(ctx, tar.NewWriter(encrypted), dir, names), encrypted.Close())
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// checkTarget returns an error if file exists and is not an export, so that Export does not overwrite another file.
func checkTarget(file string) error {
	f, _, err := durable.Open(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return failure.WithKind(failure.Usage, err)
	}
	defer f.Close()
	intro := make([]byte, len(ageIntro))
	if _, err := io.ReadFull(f, intro); err != nil || string(intro) != ageIntro {
		return failure.NewUsage("%s exists and is not encrypted with age, so it is not overwritten", file)
	}
	return nil
}

// write writes the header and the files of the state with these names to the tar archive w.
func (r *Result) write(ctx context.Context, w *tar.Writer, dir state.Dir, names []string) error {
	head, err := json.Marshal(r.Header)
	if err != nil {
		return err
	}
	if err := add(w, headerName, head); err != nil {
		return err
	}
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return err
		}
		data, err := readContent(dir, name)
		if err == nil {
			err = add(w, name, data)
		}
		if err != nil {
			return err
		}
		r.count(name)
	}
	return w.Close()
}

func add(w *tar.Writer, name string, data []byte) error {
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(data)), Mode: 0o600}); err != nil {
		return err
	}
	_, err := w.Write(data)
	return err
}

func (r *Result) count(name string) {
	if isRecord(name) {
		r.Records++
	} else {
		r.Files++
	}
}
