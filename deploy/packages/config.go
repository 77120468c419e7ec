package packages

import (
	"crypto/sha256"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Files are the names of files that differ between two systems.
type Files struct {
	Added   []string `json:"added"`
	Changed []string `json:"changed"`
	Removed []string `json:"removed"`
}

// Empty reports whether no file differs.
func (f Files) Empty() bool { return len(f.Added)+len(f.Changed)+len(f.Removed) == 0 }

// DiffConfig returns the systemd units and the other files of /etc that differ between two systems, which are in the local
// store. The names of the other files are relative to /etc.
func DiffConfig(from, to string) (units, etc Files, err error) {
	before, err := readEtc(from)
	if err != nil {
		return units, etc, err
	}
	after, err := readEtc(to)
	if err != nil {
		return units, etc, err
	}
	return compareFiles(before.units, after.units), compareFiles(before.files, after.files), nil
}

// etcFiles is the content of a system's /etc by the names of the files.
type etcFiles struct{ units, files map[string]string }

// maxContent is the size up to which files are compared by their content.
const maxContent = 1 << 20

func readEtc(system string) (etcFiles, error) {
	out := etcFiles{map[string]string{}, map[string]string{}}
	store, err := filepath.EvalSymlinks(filepath.Dir(system))
	if err != nil {
		return out, err
	}
	if err := readTree(store, filepath.Join(system, "etc"), "", out.files); err != nil {
		return out, err
	}
	for name, content := range out.files {
		if unit, found := strings.CutPrefix(name, unitFolder+"/"); found {
			if strings.Contains(unit, ".wants/") || strings.Contains(unit, ".requires/") {
				content = "" // nothing to compare in a link to a unit, because the unit itself is compared
			}
			out.units[unit] = content
			delete(out.files, name)
		}
	}
	return out, nil
}

const unitFolder = "systemd/system"

// readTree adds the files below a folder of the store, and follows links of folders only where NixOS makes them.
func readTree(store, root, prefix string, files map[string]string) error {
	root, err := filepath.EvalSymlinks(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		if name = path.Join(prefix, name); name == unitFolder { // NixOS makes this a link to a folder with all systemd units
			return readTree(store, file, name, files)
		}
		files[name], err = describeFile(store, file)
		return err
	})
}

// describeFile returns a text that differs if the file differs: its content, or the target of a link to anything but
// a small file of the store, or the hash of a large file. A link to a file outside of the store is for the node: this computer has another file there, or
// one that nixbench must not read.
func describeFile(store, file string) (string, error) {
	if real, err := filepath.EvalSymlinks(file); err == nil && strings.HasPrefix(real, store+"/") {
		if info, err := os.Stat(real); err == nil && info.Mode().IsRegular() && info.Size() <= maxContent {
			content, err := os.ReadFile(real)
			return string(content), err
		}
	}
	if info, err := os.Lstat(file); err != nil || !info.Mode().IsRegular() {
		return os.Readlink(file)
	}
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	hash := sha256.New()
	_, err = io.Copy(hash, f)
	return string(hash.Sum(nil)), err
}

func compareFiles(from, to map[string]string) Files {
	out := Files{Added: []string{}, Changed: []string{}, Removed: []string{}}
	all := maps.Clone(from)
	maps.Copy(all, to)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		before, had := from[name]
		after, has := to[name]
		switch {
		case !had:
			out.Added = append(out.Added, name)
		case !has:
			out.Removed = append(out.Removed, name)
		case before != after:
			out.Changed = append(out.Changed, name)
		}
	}
	return out
}
