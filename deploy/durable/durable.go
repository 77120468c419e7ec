// Package durable writes files whole or not at all, even where the machine loses power
// half-way. What it writes is for its owner's eyes only, from the first byte on.
package durable

import (
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
)

// Write puts data into a file. Until then it is in a hidden file beside it, and nowhere else:
// one in $TMPDIR would stay there, for nobody to find, if we were killed.
func Write(file string, data []byte) error {
	f, err := renameio.TempFile(filepath.Dir(file), file)
	if err != nil {
		return err
	}
	defer f.Cleanup()
	if _, err := f.Write(data); err != nil {
		return err
	}
	if err := f.CloseAtomicallyReplace(); err != nil {
		return err
	}
	return sync(filepath.Dir(file)) // a new name is in the folder, not in the file
}

func sync(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
