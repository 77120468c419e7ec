package state

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/nixeval"
)

// Dir is the path of a cluster's state folder. The folder need not exist.
type Dir string

// Locate returns the state folder of a cluster: in `.nixbench` beside the hive, or under
// $XDG_STATE_HOME if Nix copies the hive's folder into the store.
func Locate(src nixeval.Source, cluster string) (Dir, error) {
	if !src.Copied {
		return Dir(filepath.Join(src.Dir, ".nixbench", cluster)), nil
	}
	base := os.Getenv("XDG_STATE_HOME")
	if base == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("state folder: %w; set XDG_STATE_HOME", err)
		}
		base = filepath.Join(home, ".local", "state")
	}
	sum := sha256.Sum256([]byte(src.Dir))
	where := filepath.Base(src.Dir) + "-" + hex.EncodeToString(sum[:6])
	return Dir(filepath.Join(base, "nixbench", where, cluster)), nil
}

// FormerNames returns the folders beside d of clusters with machines whose last run read the same hive. The hive may have had
// another name then.
func (d Dir) FormerNames(hive string) []Dir {
	entries, _ := os.ReadDir(filepath.Dir(string(d))) // only for a message, so errors are ignored
	var out []Dir
	for _, e := range entries {
		other := Dir(filepath.Join(filepath.Dir(string(d)), e.Name()))
		if !e.IsDir() || other == d {
			continue
		}
		recorded, err := other.Load()
		if err != nil || recorded.Cluster == nil {
			continue
		}
		if last, err := other.OpenRun("last"); err == nil && last.Hive == hive {
			out = append(out, other)
		}
	}
	return out
}

// Root returns the path of the garbage collector root of a unit's current closure.
func (d Dir) Root(unit string) string { return filepath.Join(string(d), "gcroots", unit) }

// Facts returns the path of runtime.json, which contains the facts of the last apply.
func (d Dir) Facts() string { return filepath.Join(string(d), "runtime.json") }

// Create creates the folder with access for its owner only, and a .gitignore that makes git ignore
// it. An existing folder is verified first, see [Dir.Verify].
func (d Dir) Create() error {
	if _, err := d.Verify(); err != nil { // before nixbench creates files in the folder
		return err
	}
	if err := os.MkdirAll(string(d), 0o700); err != nil {
		return &FolderError{d, err}
	}
	ignore := filepath.Join(filepath.Dir(string(d)), ".gitignore")
	f, err := os.OpenFile(ignore, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) // with O_EXCL, a symbolic link is not followed
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err == nil {
		_, err = f.WriteString("*\n")
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return &FolderError{d, err}
	}
	return nil
}

// write writes a file of the state folder atomically.
func (d Dir) write(file string, data []byte) error {
	if err := durable.Write(file, data); err != nil {
		return &FolderError{d, err}
	}
	return nil
}
