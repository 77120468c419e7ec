package state

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nixbench/nixbench/deploy/durable"
)

// localFiles are the files in the state folder that describe this computer, and not the cluster.
var localFiles = []string{"lock", "images.json", exportsFile}

// Contents returns the files of the state that another computer needs to manage the cluster, as sorted paths with
// slashes: state.json, runtime.json, known_hosts, access files, and secrets. With runs, also the records of
// runs.
func Contents(d Dir, runs bool) ([]string, error) {
	files, err := listFiles(d, "", false)
	if err == nil {
		var secrets []string
		secrets, err = listFiles(d, "secrets", true)
		files = append(files, secrets...)
	}
	if err != nil {
		return nil, &FolderError{d, err}
	}
	files = slices.DeleteFunc(files, func(file string) bool { return !isContent(file) })
	if runs {
		records, err := listFiles(d, "runs", true)
		if err != nil {
			return nil, &FolderError{d, err}
		}
		files = append(files, slices.DeleteFunc(records, func(file string) bool { return checkContent(file) != nil })...)
	}
	slices.Sort(files)
	return files, nil
}

// listFiles returns the paths of the regular files in a subfolder, with all levels of folders if deep is set. Hidden
// files are left out, because they are temporary. If the subfolder does not exist, there are none.
func listFiles(d Dir, below string, deep bool) (files []string, err error) {
	entries, err := os.ReadDir(filepath.Join(string(d), filepath.FromSlash(below))) // follows a link: secrets may be on another disk
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		name := path.Join(below, e.Name())
		switch {
		case strings.HasPrefix(e.Name(), "."):
		case e.Type().IsRegular():
			files = append(files, name)
		case e.IsDir() && deep:
			deeper, err := listFiles(d, name, true)
			if err != nil {
				return nil, err
			}
			files = append(files, deeper...)
		}
	}
	return files, err
}

// isContent reports whether an export contains the file, which is not the record of a run. Access files that exist
// while nixbench forwards an API are useless on another computer, and plans are executed where they were made.
func isContent(file string) bool {
	top, _, below := strings.Cut(file, "/")
	if below {
		return top == "secrets" && file != "secrets/plan_key" && !strings.HasPrefix(file, "secrets/forward/")
	}
	return !slices.Contains(localFiles, file) && !slices.Contains(folders, file) && file != "benchmarks"
}

// isRecord reports whether the file is part of the record of a run.
func isRecord(file string) bool { return strings.HasPrefix(file, "runs/") }

// checkContent returns an error for a path that cannot be a file of the state: an export is input.
func checkContent(file string) error {
	parts := strings.Split(file, "/")
	hidden := slices.ContainsFunc(parts, func(part string) bool { return strings.HasPrefix(part, ".") })
	switch {
	case hidden, !filepath.IsLocal(filepath.FromSlash(file)), path.Clean(file) != file, strings.ContainsAny(file, "\x00\\"):
		return fmt.Errorf("it contains a file %q, which is outside of a state folder or hidden", file)
	case isRecord(file) && len(parts) < 3, !isRecord(file) && !isContent(file):
		return fmt.Errorf("it contains a file %q, which is not part of a state", file)
	}
	return nil
}

// ReadContent reads a file that Contents has returned.
func ReadContent(d Dir, file string) ([]byte, error) {
	data, err := durable.Read(contentFile(d, file), durable.RecordSize)
	if err != nil {
		return nil, &FolderError{d, err}
	}
	return data, nil
}

func contentFile(d Dir, file string) string {
	return filepath.Join(string(d), filepath.FromSlash(file))
}

// Digest returns a hash of the state without the records of runs, and "" if there is no state. Two folders with the
// same digest have the same state.
func Digest(d Dir) (string, error) {
	files, err := Contents(d, false)
	if err != nil || len(files) == 0 {
		return "", err
	}
	all := sha256.New()
	for _, file := range files {
		data, err := ReadContent(d, file)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(all, "%x %s\n", sha256.Sum256(data), file)
	}
	return hex.EncodeToString(all.Sum(nil)), nil
}
