package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/nixbench/nixbench/deploy/durable"
)

// Import replaces the state by another one. The new files are first written to a hidden folder. Commit then writes
// the list of these files, which completes the import: if the process is killed after that, the next process that
// takes the lock copies the rest. If it is killed before, the next process deletes the hidden folder.
type Import struct {
	lock  *Lock
	files []string
	write func(file string, data []byte) error // replaced in tests
}

// importFolder is the hidden folder of an import, which is itself a state folder with the new files.
func importFolder(d Dir) Dir { return Dir(filepath.Join(string(d), ".import")) }

// importList is the file with the list of the new files. It exists from the moment on when all of them are written.
func importList(d Dir) string { return filepath.Join(string(d), ".import.json") }

// BeginImport begins an import.
func (l *Lock) BeginImport() (*Import, error) {
	if err := l.CheckHeld(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(string(importFolder(l.dir)), 0o700); err != nil {
		return nil, &FolderError{l.dir, err}
	}
	return &Import{lock: l, write: durable.Write}, nil
}

// Add adds a file. It returns an error if a state has no such file.
func (i *Import) Add(file string, data []byte) error {
	if err := checkContent(file); err != nil {
		return err
	}
	if slices.Contains(i.files, file) {
		return fmt.Errorf("it contains the file %q twice", file)
	}
	if err := put(importFolder(i.lock.dir), file, data, i.write); err != nil {
		return &FolderError{i.lock.dir, err}
	}
	i.files = append(i.files, file)
	return nil
}

// New returns the state that Add has written.
func (i *Import) New() Dir { return importFolder(i.lock.dir) }

// Check returns an error if this nixbench cannot read the new state.json.
func (i *Import) Check() error {
	file := i.New().stateFile()
	data, err := durable.Read(file, durable.ConfigSize)
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New("it contains no state.json")
	}
	if err != nil {
		return &FolderError{i.lock.dir, err}
	}
	return DecodeFile("its state.json", data, version, &State{})
}

// Commit replaces the state by the new files, and the digests of exports by the given ones. Files of the old state that
// the new one does not have are deleted, apart from records of runs.
func (i *Import) Commit(exports []string) error {
	if err := i.lock.CheckHeld(); err != nil {
		return err
	}
	data, err := json.Marshal(exports)
	if err == nil {
		err = put(i.New(), exportsFile, data, i.write)
	}
	var list []byte
	if err == nil {
		list, err = json.Marshal(append(i.files, exportsFile))
	}
	if err == nil {
		err = i.write(importList(i.lock.dir), list)
	}
	if err != nil {
		return &FolderError{i.lock.dir, err}
	}
	return finishImport(i.lock.dir, i.write)
}

// Discard deletes the new files. After Commit it does nothing.
func (i *Import) Discard() error { return finishImport(i.lock.dir, i.write) }

// finishImport finishes a committed import, and deletes the files of one that was not committed. It is called when
// the lock is taken, because a process may have been killed.
func finishImport(d Dir, write func(string, []byte) error) error {
	if !durable.Exists(string(importFolder(d))) && !durable.Exists(importList(d)) {
		return nil
	}
	err := copyImport(d, write)
	if err == nil {
		err = d.Remove(importList(d))
	}
	if err == nil {
		err = os.RemoveAll(string(importFolder(d)))
	}
	if err != nil {
		return &FolderError{d, fmt.Errorf("import: %w", err)}
	}
	return nil
}

// copyImport copies the files of a committed import, and deletes the other files of the state. It may be repeated.
func copyImport(d Dir, write func(string, []byte) error) error {
	list, err := durable.Read(importList(d), durable.ConfigSize)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // not committed, or copied
	}
	if err != nil {
		return err
	}
	var files []string
	if err := json.Unmarshal(list, &files); err != nil {
		return fmt.Errorf("%s is damaged: %w", importList(d), err)
	}
	for _, file := range files {
		if err := checkContent(file); err != nil && file != exportsFile {
			return fmt.Errorf("%s: %w", importList(d), err)
		}
		data, err := durable.Read(contentFile(importFolder(d), file), durable.RecordSize)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the files are deleted after all of them have been copied
		}
		if err == nil {
			err = put(d, file, data, write)
		}
		if err != nil {
			return err
		}
	}
	old, err := Contents(d, false)
	if err != nil {
		return err
	}
	for _, file := range old {
		if !slices.Contains(files, file) {
			if err := os.Remove(contentFile(d, file)); err != nil {
				return err
			}
		}
	}
	return nil
}

// put writes a file of the state, and the folders above it.
func put(d Dir, file string, data []byte, write func(string, []byte) error) error {
	to := contentFile(d, file)
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	return write(to, data)
}
