package bench

import (
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// explainChange returns a text about what has changed, outside of the sweep's copy of the hive, since the systems were frozen. Such a
// change is why systems differ from the frozen ones. outside maps each path of which the sweep keeps no copy to the file to which its
// links led.
func explainChange(outside map[string]string, frozen time.Time) string {
	const way = "undo this, or begin a new sweep with nixbench bench run --new"
	for _, path := range slices.Sorted(maps.Keys(outside)) {
		target, err := filepath.EvalSymlinks(path)
		if err != nil {
			return fmt.Sprintf("%s, of which a sweep keeps no copy, cannot be read: %v; %s", path, err, way)
		}
		if target != outside[path] {
			return fmt.Sprintf("%s, of which a sweep keeps no copy, was %s and is now %s; %s", path, outside[path], target, way)
		}
		if file := newestFile(target, frozen); file != "" {
			return fmt.Sprintf("%s was changed after the sweep was frozen, and a sweep keeps no copy of %s; %s", file, path, way)
		}
	}
	text := "a file that is not in the sweep's copy of the hive was changed after the sweep was frozen"
	if len(outside) > 0 {
		text += fmt.Sprintf(" (a sweep keeps no copy of %s)", strings.Join(slices.Sorted(maps.Keys(outside)), " and "))
	}
	return text + "; " + way
}

// newestFile returns the file or folder below a folder that was changed last, if it was changed later than after. Otherwise it returns an
// empty string. Files that cannot be read are left out.
func newestFile(folder string, after time.Time) (newest string) {
	_ = filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if d.IsDir() && d.Name() == ".git" {
			return fs.SkipDir
		}
		if info, err := d.Info(); err == nil && info.ModTime().After(after) {
			after, newest = info.ModTime(), path
		}
		return nil
	})
	return newest
}
