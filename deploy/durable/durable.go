// Package durable writes files whole or not at all, even where the machine loses power
// half-way. What it writes is for its owner's eyes only, from the first byte on.
//
// It also reads files whose path comes from outside, such as from a hive: regular files only,
// and never more than a limit. A pipe would block for ever, and /dev/zero has no end.
package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
)

// Write puts data into a file. Until then it is in a hidden file beside it, and nowhere else:
// one in $TMPDIR would stay there, for nobody to find, if we were killed.
//
// A link is replaced, not followed. A device or a pipe is refused: a file would take its place.
func Write(file string, data []byte) error {
	err := writeAtomically(file, data)
	if inner := new(fs.PathError); errors.As(err, &inner) {
		err = inner.Err // it is about the hidden file
	}
	if err != nil {
		return &fs.PathError{Op: "write", Path: file, Err: err}
	}
	return nil
}

func writeAtomically(file string, data []byte) error {
	if info, err := os.Stat(file); err == nil && !info.Mode().IsRegular() {
		return errors.New("it is not a file")
	}
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
	return syncDir(filepath.Dir(file)) // a new name is in the folder, not in the file
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
