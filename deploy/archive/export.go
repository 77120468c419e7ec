// Package archive exports the state of a cluster to an encrypted file and imports it on another computer.
//
// The file is JSON that is encrypted with age: the [Header], and the files of the state folder that another computer needs.
// age proves that the file is complete, but it does not prove who has written the file: everybody who has the public key of a
// recipient can encrypt a file for this recipient.
package archive

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
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
	By       string    `json:"by"` // user and host
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
	plain, err := json.Marshal(c)
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
	if err := durable.Write(file, out.Bytes()); err != nil {
		return nil, err
	}
	return &Result{Header: c.Header, Files: len(c.Files), Changed: true}, c.Files.recordExchange(dir)
}

// notExported are files and folders of the state folder that are no part of the cluster's state: they describe this computer. The key
// of plan files is one of them, because a plan is executed on the computer that made it. No file of an export may have the name of
// one of the folders.
var notExported = []string{"lock", exchangeFile, "secrets/plan_key", "runs", "gcroots", "benchmarks", "secrets", "secrets/forward"}

// files are the files of a state that another computer needs to manage the cluster: state.json, runtime.json, known_hosts, access
// files, and secrets. The keys are their paths, with slashes.
type files map[string][]byte

func readFiles(d state.Dir) (files, error) {
	out := files{}
	for _, folder := range []string{"", "secrets"} {
		root := os.DirFS(filepath.Join(string(d), folder)) // follows a link: secrets may be on another disk
		err := fs.WalkDir(root, ".", func(name string, e fs.DirEntry, err error) error {
			file := path.Join(folder, name)
			switch {
			case errors.Is(err, fs.ErrNotExist):
				return nil
			case err != nil:
				return err
			case folder == "" && e.IsDir() && name != ".":
				return fs.SkipDir
			case e.Type().IsRegular() && checkPath(file) == nil:
				out[file], err = durable.Read(filepath.Join(string(d), file), durable.ConfigSize)
			}
			return err
		})
		if err != nil {
			return nil, d.Error(err)
		}
	}
	return out, nil
}

// checkPath returns an error if an export may not contain a file with this path. An export that is imported may be malicious.
// An export contains no access files (secrets/forward), because they are useless on another computer.
func checkPath(file string) error {
	hidden := slices.ContainsFunc(strings.Split(file, "/"), func(part string) bool { return strings.HasPrefix(part, ".") })
	switch {
	case hidden, !filepath.IsLocal(filepath.FromSlash(file)), path.Clean(file) != file, strings.ContainsAny(file, "\x00\\"):
		return fmt.Errorf("it contains a file %q, which is outside of a state folder or hidden", file)
	case strings.Contains(file, "/") && !strings.HasPrefix(file, "secrets/"), slices.Contains(notExported, file), strings.HasPrefix(file, "secrets/forward/"):
		return fmt.Errorf("it contains a file %q, which is not part of a state", file)
	}
	return nil
}

func (f files) digest() string {
	data, _ := json.Marshal(f) // never fails, and is ordered by the names
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// exchangeFile contains the digest of the state that was last exported from or imported into the folder. If the folder still has this
// state, an import loses no changes.
const exchangeFile = "exchanged"

func (f files) recordExchange(d state.Dir) error {
	return d.Write(filepath.Join(string(d), exchangeFile), []byte(f.digest()))
}

// isExchanged reports whether f is the state that was last exported from or imported into the folder.
func (f files) isExchanged(d state.Dir) bool {
	data, err := durable.Read(filepath.Join(string(d), exchangeFile), durable.ConfigSize)
	return err == nil && string(data) == f.digest()
}
