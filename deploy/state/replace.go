package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/nixbench/nixbench/deploy/durable"
)

// Staging returns a hidden folder for the files of another state, and is itself a state folder. [Lock.Replace] replaces
// the state in d by the state in this folder. If the process is killed before it calls Replace, the next process that
// takes the lock deletes the folder.
func (d Dir) Staging() Dir { return Dir(filepath.Join(string(d), ".import")) }

// committedFolder returns the new path of the staging folder: Replace renames it to this path before its files replace the state.
func committedFolder(d Dir) string { return filepath.Join(string(d), ".imported") }

// obsoleteList is a file in the staging folder: the paths of the files to delete.
const obsoleteList = ".obsolete.json"

// Replace copies the files in the staging folder to the state folder. It also deletes the files of the old state whose
// paths are in obsolete. Before both, it renames the staging folder. If the process is killed after the rename, the
// next process that takes the lock completes the replacement.
func (l *Lock) Replace(obsolete []string) error { return replaceFiles(l, obsolete, durable.Write) }

// replaceFiles does what Replace does, and calls the function write to write a file. Tests pass another function.
func replaceFiles(l *Lock, obsolete []string, write func(string, []byte) error) error {
	if err := l.CheckHeld(); err != nil {
		return err
	}
	staging := string(l.dir.Staging())
	list, err := json.Marshal(obsolete)
	if err == nil {
		err = write(filepath.Join(staging, obsoleteList), list)
	}
	if err == nil {
		err = os.Rename(staging, committedFolder(l.dir)) // finishReplacement writes files beside this folder, which syncs the rename
	}
	if err != nil {
		return &FolderError{l.dir, err}
	}
	return finishReplacement(l.dir, write)
}

// finishReplacement completes a replacement for which the staging folder was already renamed, and then deletes the folder.
func finishReplacement(d Dir, write func(string, []byte) error) error {
	committed := committedFolder(d)
	if durable.Exists(committed) {
		err := copyCommitted(d, committed, write)
		if err == nil {
			err = os.Rename(committed, string(d.Staging())) // rename first: no later process may copy a partly deleted folder
		}
		if err != nil {
			return &FolderError{d, fmt.Errorf("import: %w", err)}
		}
	}
	if err := os.RemoveAll(string(d.Staging())); err != nil {
		return &FolderError{d, err}
	}
	return nil
}

// copyCommitted copies the files in the folder committed to the state folder, and then deletes the obsolete files of the state.
func copyCommitted(d Dir, committed string, write func(string, []byte) error) error {
	list := filepath.Join(committed, obsoleteList)
	err := filepath.WalkDir(committed, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || path == list {
			return err
		}
		data, err := durable.Read(path, durable.RecordSize)
		if err != nil {
			return err
		}
		to := filepath.Join(string(d), path[len(committed):])
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			return err
		}
		return write(to, data)
	})
	if err != nil {
		return err
	}
	var obsolete []string
	data, err := durable.Read(list, durable.ConfigSize)
	if err == nil {
		err = json.Unmarshal(data, &obsolete)
	}
	for _, file := range obsolete {
		err = errors.Join(err, d.Remove(filepath.Join(string(d), filepath.FromSlash(file))))
	}
	return err
}
