package state

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/failure"
)

// replacementFile returns the path of the file that contains the argument of [Lock.Replace] until all files are replaced.
func (d Dir) replacementFile() string { return filepath.Join(string(d), ".replacement.json") }

// Replace writes files of the state folder, and deletes those whose content is nil. The keys are paths inside of the folder. Replace
// first writes all contents to a single file. If the process is then killed, the next process that takes the lock completes the
// replacement.
func (l *Lock) Replace(files map[string][]byte) error {
	if err := l.CheckHeld(); err != nil {
		return err
	}
	if err := checkReplacement(l.dir, files); err != nil {
		return err
	}
	data, err := json.Marshal(files)
	if err == nil {
		err = l.dir.Write(l.dir.replacementFile(), data)
	}
	if err != nil {
		return err
	}
	return finishReplacement(l.dir, l.dir.Write)
}

// checkReplacement returns an error if a file cannot be written because its path is that of a folder, or because it is below a file.
// After such a failure in the middle of a replacement, no process could complete it, or take the lock.
func checkReplacement(d Dir, files map[string][]byte) error {
	for name, content := range files {
		if content == nil {
			continue
		}
		if info, err := os.Stat(filepath.Join(string(d), name)); err == nil && info.IsDir() {
			return failure.NewUsage("state folder %s: %s is a folder and cannot be replaced by a file; nothing was changed", d, name)
		}
		for parent := path.Dir(name); parent != "."; parent = path.Dir(parent) {
			written, isReplaced := files[parent]
			info, err := os.Stat(filepath.Join(string(d), parent))
			if written != nil || !isReplaced && err == nil && !info.IsDir() {
				return failure.NewUsage("state folder %s: %s cannot be written below the file %s; nothing was changed", d, name, parent)
			}
		}
	}
	return nil
}

// finishReplacement completes a replacement if there is one. It calls the function write to write a file.
func finishReplacement(d Dir, write func(string, []byte) error) error {
	data, err := durable.Read(d.replacementFile(), 2*durable.RecordSize) // encoded, the files are larger
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var files map[string][]byte
	if err == nil {
		err = json.Unmarshal(data, &files)
	}
	if err != nil {
		return &FolderError{d, err}
	}
	for _, deletes := range []bool{true, false} { // deletes first: a file may be written below the path of a deleted one
		for name, content := range files {
			file := filepath.Join(string(d), filepath.FromSlash(name))
			switch {
			case deletes != (content == nil):
				continue
			case deletes:
				err = d.Remove(file)
			default:
				if err = os.MkdirAll(filepath.Dir(file), 0o700); err == nil {
					err = write(file, content)
				}
			}
			if err != nil {
				return err
			}
		}
	}
	return d.Remove(d.replacementFile())
}
