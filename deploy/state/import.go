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
func (d Dir) importFolder() Dir { return Dir(filepath.Join(string(d), ".import")) }

// importList is the file with the list of the new files. It exists from the moment on when all of them are written.
func (d Dir) importList() string { return filepath.Join(string(d), ".import.json") }

// BeginImport begins an import.
func (l *Lock) BeginImport() (*Import, error) {
	if err := l.checkHeld(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(string(l.dir.importFolder()), 0o700); err != nil {
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
	if err := i.lock.dir.importFolder().put(file, data, i.write); err != nil {
		return &FolderError{i.lock.dir, err}
	}
	i.files = append(i.files, file)
	return nil
}

// New returns the state that Add has written.
func (i *Import) New() Dir { return i.lock.dir.importFolder() }

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
	return decodeFile("its state.json", data, version, &State{})
}

// Commit replaces the state by the new files, and the digests of exports by the given ones. Files of the old state that
// the new one does not have are deleted, apart from records of runs.
func (i *Import) Commit(exports []string) error {
	if err := i.lock.checkHeld(); err != nil {
		return err
	}
	data, err := json.Marshal(exports)
	if err == nil {
		err = i.New().put(exportsFile, data, i.write)
	}
	var list []byte
	if err == nil {
		list, err = json.Marshal(append(i.files, exportsFile))
	}
	if err == nil {
		err = i.write(i.lock.dir.importList(), list)
	}
	if err != nil {
		return &FolderError{i.lock.dir, err}
	}
	return i.lock.dir.finishImport(i.write)
}

// Discard deletes the new files. After Commit it does nothing.
func (i *Import) Discard() error { return i.lock.dir.finishImport(i.write) }

// finishImport finishes a committed import, and deletes the files of one that was not committed. It is called when
// the lock is taken, because a process may have been killed.
func (d Dir) finishImport(write func(string, []byte) error) error {
	if !exists(string(d.importFolder())) && !exists(d.importList()) {
		return nil
	}
	err := d.copyImport(write)
	if err == nil {
		err = d.remove(d.importList())
	}
	if err == nil {
		err = os.RemoveAll(string(d.importFolder()))
	}
	if err != nil {
		return &FolderError{d, fmt.Errorf("import: %w", err)}
	}
	return nil
}

// copyImport copies the files of a committed import, and deletes the other files of the state. It may be repeated.
func (d Dir) copyImport(write func(string, []byte) error) error {
	list, err := durable.Read(d.importList(), durable.ConfigSize)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // not committed, or copied
	}
	if err != nil {
		return err
	}
	var files []string
	if err := json.Unmarshal(list, &files); err != nil {
		return fmt.Errorf("%s is damaged: %w", d.importList(), err)
	}
	for _, file := range files {
		if err := checkContent(file); err != nil && file != exportsFile {
			return fmt.Errorf("%s: %w", d.importList(), err)
		}
		data, err := durable.Read(d.importFolder().contentFile(file), durable.RecordSize)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the files are deleted after all of them have been copied
		}
		if err == nil {
			err = d.put(file, data, write)
		}
		if err != nil {
			return err
		}
	}
	old, err := d.Contents(false)
	if err != nil {
		return err
	}
	for _, file := range old {
		if !slices.Contains(files, file) {
			if err := os.Remove(d.contentFile(file)); err != nil {
				return err
			}
		}
	}
	return nil
}

// put writes a file of the state, and the folders above it.
func (d Dir) put(file string, data []byte, write func(string, []byte) error) error {
	to := d.contentFile(file)
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	return write(to, data)
}
