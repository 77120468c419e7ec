package modules

import (
	"bytes"
	"errors"
	"io/fs"
)

// Compare compares a copy of nixbench's modules in a folder with the modules in this program. It returns the paths of modules
// that are missing in the folder or have another content there. It ignores other files. If the folder does not exist, the error
// wraps [fs.ErrNotExist].
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
