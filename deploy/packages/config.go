package packages

import (
	"crypto/sha256"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
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

func (f Files) Empty() bool { return len(f.Added)+len(f.Changed)+len(f.Removed) == 0 }

// DiffConfig returns the systemd units and the other files of /etc that differ between two systems, which are in the local
// store. The names of the other files are relative to /etc.
func DiffConfig(from, to string) (units, etc Files, err error) {
	unitsBefore, etcBefore, err := readEtc(from)
	if err != nil {
		return units, etc, err
	}
	unitsAfter, etcAfter, err := readEtc(to)
	return compareFiles(unitsBefore, unitsAfter), compareFiles(etcBefore, etcAfter), err
}

const unitFolder = "systemd/system"

// readEtc returns a description of each systemd unit and of each other file of a system's /etc, by its name.
func readEtc(system string) (units, etc map[string]string, err error) {
	units, etc = map[string]string{}, map[string]string{}
	store, err := filepath.EvalSymlinks(filepath.Dir(system))
	if err != nil {
		return units, etc, err
	}
	if err = readTree(store, filepath.Join(system, "etc"), etc); err == nil {
		// NixOS makes the folder of the units a link to a folder in the store.
		maps.DeleteFunc(etc, func(name, _ string) bool { return name == unitFolder || strings.HasPrefix(name, unitFolder+"/") })
		err = readTree(store, filepath.Join(system, "etc", unitFolder), units)
	}
	for unit := range units {
		if strings.Contains(unit, ".wants/") || strings.Contains(unit, ".requires/") {
			units[unit] = "" // nothing to compare in a link to a unit, because the unit itself is compared
		}
	}
	return units, etc, err
}

// readTree adds the files below a folder of the store. It follows root itself if it is a link, but no links below it.
func readTree(store, root string, files map[string]string) error {
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
		if err == nil {
			files[name], err = describeFile(store, file)
		}
		return err
	})
}

// maxContent is the size up to which the content of a linked file is compared. For a larger file, the link is compared.
const maxContent = 1 << 20

// describeFile returns a text that differs if the file differs: the hash of a file in the store, or otherwise the target of a link.
// A link to a file outside of the store is for the node: this computer has another file there, or one that nixbench must not read.
func describeFile(store, file string) (string, error) {
	real, err := filepath.EvalSymlinks(file)
	if err != nil || !strings.HasPrefix(real, store+"/") {
		return os.Readlink(file)
	}
	if info, err := os.Stat(real); err != nil || !info.Mode().IsRegular() || info.Size() > maxContent && real != file {
		return os.Readlink(file)
	}
	f, err := os.Open(real)
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
