package archive

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"filippo.io/age"

	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/state"
)

const (
	formatVersion = 1
	ageIntro      = "age-encryption.org/v1\n" // the first line of a file that age has encrypted
)

type Header struct {
	Version  int       `json:"version"`
	Cluster  string    `json:"cluster"`
	Exported time.Time `json:"exported"`
	By       string    `json:"by"`     // user and host
	States   []string  `json:"states"` // digests of earlier states; the last element is the digest of this state
}

type content struct {
	Header
	Files files `json:"contents"`
}

// Result describes what was exported or imported.
type Result struct {
	Header
	Files   int  `json:"files"`   // number of files
	Changed bool `json:"changed"` // false if an import changed nothing, because the folder had the same state
}

// Export writes the state of the cluster to file, encrypted for the recipients. It replaces only a file that age has encrypted.
func Export(lock *state.Lock, cluster, file string, recipients []age.Recipient) (*Result, error) {
	old, err := durable.Read(file, durable.RecordSize)
	switch {
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return nil, failure.WithKind(failure.Usage, err)
	case err == nil && !bytes.HasPrefix(old, []byte(ageIntro)):
		return nil, failure.NewUsage("%s exists and is not encrypted with age, so it is not overwritten", file)
	}
	dir := lock.Dir()
	if s, err := dir.Load(); err != nil { // Load also fails if state.json is damaged
		return nil, err
	} else if s.Cluster == nil && len(s.Nodes) == 0 {
		return nil, failure.WithHint(failure.NewUsage("there is no state of %s in %s", cluster, dir), "nixbench apply creates it")
	}
	holder := state.Self("state export")
	c := content{Header: Header{Version: formatVersion, Cluster: cluster, Exported: holder.Started, By: holder.User + "@" + holder.Host}}
	if c.Files, err = readFiles(dir); err != nil {
		return nil, err
	}
	digests, err := readDigests(dir)
	if err != nil {
		return nil, err
	}
	now := c.Files.digest()
	c.States = append(slices.DeleteFunc(digests, func(d string) bool { return d == now }), now)
	c.States = c.States[max(0, len(c.States)-maxDigests):]
	plain, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(c.States)
	if err == nil {
		err = dir.Write(filepath.Join(string(dir), digestsFile), data)
	}
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	encrypted, err := age.Encrypt(&out, recipients...)
	if err == nil {
		_, err = encrypted.Write(plain)
		err = errors.Join(err, encrypted.Close())
	}
	if err != nil {
		return nil, fmt.Errorf("encrypt %s: %w", file, err)
	}
	return &Result{Header: c.Header, Files: len(c.Files), Changed: true}, durable.Write(file, out.Bytes())
}
