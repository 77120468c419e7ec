// Package durable writes files atomically, also if the machine loses power during the write. From the
// first byte on, only the owner can read them.
//
// It also reads files whose path is input, such as a path in a hive. It reads only regular files, and at
// most a given number of bytes: a pipe would block forever, and /dev/zero has no end.
package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
)

// Write replaces the content of a file with data. The data is first written to a hidden file in the same
// folder, and not in $TMPDIR, where a killed run would leave a file that no later run finds.
//
// A link is replaced, not followed. A device or a pipe is an error, because a file would replace it.
func Write(file string, data []byte) error {
	err := writeAtomically(file, data)
	if inner := new(fs.PathError); errors.As(err, &inner) {
		err = inner.Err // without the path of the hidden file
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
	return syncDir(filepath.Dir(file)) // the name of a file is stored in its folder
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
