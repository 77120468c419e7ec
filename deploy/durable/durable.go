// Package durable writes files atomically, even if the machine loses power during the write. Only the owner can read a
// file, from its first byte on. The exception is [WriteShared].
//
// The package also reads files whose path is input, such as a path in a hive. It reads only regular files, because a read from a pipe
// could block forever. It reads at most a given number of bytes, because a file may be too large for the memory.
package durable

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"
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
	dir, err := os.Open(folder)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync() // because the name of a file is stored in its folder
}

// Size limits for kinds of files. A larger file is a mistake, or an attempt to exhaust memory.
const (
	KeySize    = 16 << 20  // one secret, or a file of an SSH client
	ConfigSize = 64 << 20  // state, facts, a flake.nix: thousands of nodes fit
	RecordSize = 256 << 20 // the recorded output of a run
)

// SizeError is returned if a file, or the output of a program, is larger than its limit.
type SizeError struct{ Limit int64 }

func (e *SizeError) Error() string {
	return fmt.Sprintf("it is larger than %d MiB", e.Limit>>20)
}

// Open opens a regular file for reading, and follows links. A pipe, a socket or a device, which could block, is an error.
func Open(file string) (*os.File, fs.FileInfo, error) {
	f, err := os.OpenFile(file, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil {
		err = CheckRegular(info)
	}
	if err != nil {
		f.Close()
		return nil, nil, &fs.PathError{Op: "read", Path: file, Err: err}
	}
	return f, info, nil
}

// Read returns the content of a file that [Open] opens. If it has more than limit bytes, the error wraps a [SizeError].
func Read(file string, limit int64) ([]byte, error) {
	f, _, err := Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := ReadAll(f, limit)
	if size := (*SizeError)(nil); errors.As(err, &size) {
		err = &fs.PathError{Op: "read", Path: file, Err: err}
	}
	return data, err
}

// ReadAll reads r to its end. If r has more than limit bytes, it returns a [SizeError].
func ReadAll(r io.Reader, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(data)) > limit {
		return nil, &SizeError{limit}
	}
	return data, err
}

// CheckRegular returns an error if a file is not a regular file. The error names the type of the file, such as a pipe.
func CheckRegular(info fs.FileInfo) error {
	if info.Mode().IsRegular() {
		return nil
	}
	types := map[fs.FileMode]string{fs.ModeDir: "folder", fs.ModeSymlink: "symbolic link", fs.ModeNamedPipe: "pipe", fs.ModeSocket: "socket"}
	return fmt.Errorf("it is a %s, not a regular file", cmp.Or(types[info.Mode().Type()], "device"))
}

func Exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// DecodeJSON decodes the content of a JSON file whose format has this version, and returns the version that it has; 0: none. Other
// versions are an error. Unknown fields are an error, because they would be lost when the file is written again.
func DecodeJSON(data []byte, version int, into any) (found int, err error) {
	var head struct{ Version int }
	switch err := json.Unmarshal(data, &head); {
	case err != nil:
		return 0, err
	case head.Version < 1:
		return 0, errors.New("it has no version")
	case head.Version != version:
		return head.Version, fmt.Errorf("it has version %d, and this nixbench reads version %d", head.Version, version)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	return version, d.Decode(into)
}
