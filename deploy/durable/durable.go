// Package durable writes files atomically, even if the machine loses power during the write. Only the owner can read a
// file, from its first byte on. The exception is [WriteShared].
//
// The package also reads files whose path is input, such as a path in a hive. It reads only regular files, because a read from a pipe
// could block forever. It reads at most a given number of bytes, because a file may be too large for the memory.
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

// WriteShared writes a file as [Write] does, for a file without secrets, such as a file in a git repository. It keeps
// the permissions of an existing file. The permissions of a new file are those that the umask allows.
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

// WriteFrom replaces the content of a file as [Write] does. The function write writes the new content. If write fails,
// the file is unchanged, and WriteFrom returns the error of write.
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

// describe returns an error that contains err, the error of a failed write, and the path of the file.
func describe(file string, err error) error {
	if inner := new(fs.PathError); errors.As(err, &inner) {
		err = inner.Err // leave out the path of the hidden file
	}
	if err != nil {
		return &fs.PathError{Op: "write", Path: file, Err: err}
	}
	return nil
}

// writeAtomically calls write to write a temporary file in the folder of file, and then renames the temporary file to file.
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
	return syncDir(filepath.Dir(file)) // also sync the folder, because the name of a file is stored in its folder
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
