package modules

import (
	"bytes"
	"errors"
	"io/fs"
)

// Compare returns the paths of the modules of nixbench that are missing in a folder or have another content there. Other files
// in the folder do not matter. It returns an error that wraps [fs.ErrNotExist] if the folder does not exist.
func Compare(folder fs.FS) (differ []string, err error) {
	if _, err := fs.Stat(folder, "."); err != nil {
		return nil, err
	}
	err = fs.WalkDir(Files, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		want, err := fs.ReadFile(Files, path)
		if err != nil {
			return err
		}
		content, err := fs.ReadFile(folder, path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err != nil || !bytes.Equal(content, want) {
			differ = append(differ, path)
		}
		return nil
	})
	return differ, err
}
