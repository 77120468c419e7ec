package modules

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
)

// Sums are the SHA-256 hashes of files, by their slash-separated paths in the folder of the modules.
type Sums map[string]string

// Sum returns the hash of a file's content.
func Sum(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// OwnSums returns the hashes of [Files].
func OwnSums() (Sums, error) {
	sums := Sums{}
	err := fs.WalkDir(Files, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := fs.ReadFile(Files, path)
		sums[path] = Sum(content)
		return err
	})
	return sums, err
}

// Digest returns one hash of all files.
func (s Sums) Digest() string {
	var text []byte
	for _, path := range slices.Sorted(maps.Keys(s)) {
		text = fmt.Appendf(text, "%s %s\n", s[path], path)
	}
	return Sum(text)
}

// Equal reports whether the folder contains all files with these hashes. Other files in the folder do not matter. It
// returns an error that wraps [fs.ErrNotExist] if the folder does not exist.
func (s Sums) Equal(folder fs.FS) (bool, error) {
	if _, err := fs.Stat(folder, "."); err != nil {
		return false, err
	}
	for path, want := range s {
		content, err := fs.ReadFile(folder, path)
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		if Sum(content) != want {
			return false, nil
		}
	}
	return true, nil
}
