// Package durable writes files atomically, also if the machine loses power during the write. From the
// first byte on, only the owner can read them, except those of [WriteShared].
//
// It also reads files whose path is input, such as a path in a hive. It reads only regular files, and at
// most a given number of bytes: a pipe would block forever, and /dev/zero has no end.
package durable

import (
	"errors"
	"io"
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
	return describe(file, writeAtomically(file, writeAll(data), private))
}

// WriteShared is like [Write] for a file that has no secrets, such as one that belongs into a git repository: it keeps the
// permissions of the file, and a new file is as readable as the umask allows.
func WriteShared(file string, data []byte) error {
	return describe(file, writeAtomically(file, writeAll(data), renameio.WithPermissions(0o666), renameio.WithExistingPermissions()))
}

// private are the permissions of a file that may have secrets.
var private = renameio.WithStaticPermissions(0o600)

func writeAll(data []byte) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	}
}

// WriteFrom is like [Write], and the content is what the function write writes. If write fails, the file is
// unchanged, and the error is that of write.
func WriteFrom(file string, write func(io.Writer) error) error {
	var cause error
	err := writeAtomically(file, func(w io.Writer) error {
		cause = write(w)
		return cause
	}, private)
	if cause != nil {
		return cause
	}
	return describe(file, err)
}

// describe returns the error of a write with the path of the file.
func describe(file string, err error) error {
	if inner := new(fs.PathError); errors.As(err, &inner) {
		err = inner.Err // without the path of the hidden file
	}
	if err != nil {
		return &fs.PathError{Op: "write", Path: file, Err: err}
	}
	return nil
}

func writeAtomically(file string, write func(io.Writer) error, permissions ...renameio.Option) error {
	if info, err := os.Stat(file); err == nil && !info.Mode().IsRegular() {
		return errors.New("it is not a file")
	}
	f, err := renameio.NewPendingFile(file, append(permissions, renameio.WithTempDir(filepath.Dir(file)))...)
	if err != nil {
		return err
	}
	defer f.Cleanup()
	if err := write(f); err != nil {
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
