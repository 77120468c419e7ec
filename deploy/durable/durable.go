// Package durable writes files atomically, even if the machine loses power during the write. Only the owner can read a
// file, from its first byte on. The exception is [WriteShared].
//
// The package also reads files whose path is input, such as a path in a hive. It reads only regular files, because a read from a pipe
// could block forever. It reads at most a given number of bytes, because a file may be too large for the memory.
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
	return writeWithPermissions(file, data, renameio.WithStaticPermissions(0o600))
}

// WriteShared writes a file as [Write] does, for a file without secrets, such as a file in a git repository. It keeps
// the permissions of an existing file. The permissions of a new file are those that the umask allows.
func WriteShared(file string, data []byte) error {
	return writeWithPermissions(file, data, renameio.WithPermissions(0o666), renameio.WithExistingPermissions())
}

// Symlink makes a symbolic link to target, and replaces another link with this name.
func Symlink(target, link string) error { return renameio.Symlink(target, link) }

func writeWithPermissions(file string, data []byte, permissions ...renameio.Option) error {
	err := replace(file, data, permissions)
	if inner := (*fs.PathError)(nil); errors.As(err, &inner) {
		err = inner.Err // leave out the path of the hidden file
	}
	if err != nil {
		return &fs.PathError{Op: "write", Path: file, Err: err}
	}
	return nil
}

func replace(file string, data []byte, options []renameio.Option) error {
	if info, err := os.Stat(file); err == nil && !info.Mode().IsRegular() {
		return errors.New("it is not a file")
	}
	folder := filepath.Dir(file)
	f, err := renameio.NewPendingFile(file, append(options, renameio.WithTempDir(folder))...)
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
	return syncDir(folder) // because the name of a file is stored in its folder
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
