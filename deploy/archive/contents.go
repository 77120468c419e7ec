package archive

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/state"
)

// digestsFile contains the digests of the states that were exported from or imported into the folder, the newest last. An export
// contains these digests. So an import can find out whether the state in the folder is an earlier version of the exported state.
const digestsFile = "exports.json"

const maxDigests = 1000

// notExported are files and folders of the state folder that an export does not contain as state: they describe this computer and not
// the cluster, or are records of runs. The key of plan files is one of them, because a plan is executed on the computer that made it.
var notExported = []string{"lock", "images.json", digestsFile, "gcroots", "runs", "benchmarks", "secrets", "secrets/plan_key"}

// checkContent returns an error if a path in an export cannot be a file of a state. The export is input and may be
// malicious. The access files in secrets/forward are useless on another computer.
func checkContent(file string) error {
	parts := strings.Split(file, "/")
	hidden := slices.ContainsFunc(parts, func(part string) bool { return strings.HasPrefix(part, ".") })
	isPart := len(parts) == 1 || parts[0] == "secrets" || parts[0] == "runs" && len(parts) > 2
	switch {
	case hidden, !filepath.IsLocal(filepath.FromSlash(file)), path.Clean(file) != file, strings.ContainsAny(file, "\x00\\"):
		return fmt.Errorf("it contains a file %q, which is outside of a state folder or hidden", file)
	case !isPart, slices.Contains(notExported, file), strings.HasPrefix(file, "secrets/forward/"):
		return fmt.Errorf("it contains a file %q, which is not part of a state", file)
	}
	return nil
}

// isRecord reports whether the file is part of the record of a run.
func isRecord(file string) bool { return strings.HasPrefix(file, "runs/") }

// contents returns the files of the state that another computer needs to manage the cluster, as sorted paths with slashes: state.json,
// runtime.json, known_hosts, access files, and secrets. If runs is set, it also returns the files of the records of runs.
func contents(d state.Dir, runs bool) ([]string, error) {
	files, err := listFiles(d, "", false)
	for _, folder := range []string{"secrets", "runs"} {
		if err == nil && (runs || folder != "runs") {
			var deeper []string
			deeper, err = listFiles(d, folder, true)
			files = append(files, deeper...)
		}
	}
	if err != nil {
		return nil, &state.FolderError{Dir: d, Err: err}
	}
	files = slices.DeleteFunc(files, func(file string) bool { return checkContent(file) != nil })
	slices.Sort(files)
	return files, nil
}

// listFiles returns the paths of the regular files in a subfolder, with all levels of folders if deep is set. If the
// subfolder does not exist, it returns no paths.
func listFiles(d state.Dir, below string, deep bool) (files []string, err error) {
	entries, err := os.ReadDir(filepath.Join(string(d), below)) // follows a link: secrets may be on another disk
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		name := path.Join(below, e.Name())
		if e.Type().IsRegular() {
			files = append(files, name)
		} else if e.IsDir() && deep {
			deeper, err := listFiles(d, name, true)
			if err != nil {
				return nil, err
			}
			files = append(files, deeper...)
		}
	}
	return files, err
}

// readContent reads a file that contents has returned.
func readContent(d state.Dir, file string) ([]byte, error) {
	data, err := durable.Read(filepath.Join(string(d), file), durable.RecordSize)
	if err != nil {
		return nil, &state.FolderError{Dir: d, Err: err}
	}
	return data, nil
}

// computeDigest returns a hash of the state without the records of runs, and "" if there is no state. Two folders with the
// same digest have the same state.
func computeDigest(d state.Dir) (string, error) {
	files, err := contents(d, false)
	if err != nil || len(files) == 0 {
		return "", err
	}
	all := sha256.New()
	for _, file := range files {
		data, err := readContent(d, file)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(all, "%x %s\n", sha256.Sum256(data), file)
	}
	return hex.EncodeToString(all.Sum(nil)), nil
}

// readDigests reads the digests of earlier states.
func readDigests(d state.Dir) (digests []string, err error) {
	file := filepath.Join(string(d), digestsFile)
	data, err := durable.Read(file, durable.ConfigSize)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, &state.FolderError{Dir: d, Err: err}
	}
	if err := json.Unmarshal(data, &digests); err != nil {
		return nil, &state.FileError{File: file, Err: err, Fix: "remove it; the next import may then need --force"}
	}
	return digests, nil
}

// recordDigest adds the digest of the present state to the digests of earlier states, and returns all of them.
func recordDigest(d state.Dir) ([]string, error) {
	digests, err := readDigests(d)
	if err != nil {
		return nil, err
	}
	now, err := computeDigest(d)
	if err != nil {
		return nil, err
	}
	digests = append(slices.DeleteFunc(digests, func(d string) bool { return d == now }), now)
	digests = digests[max(0, len(digests)-maxDigests):]
	return digests, writeDigests(d, digests)
}

func writeDigests(d state.Dir, digests []string) error {
	data, err := json.Marshal(digests)
	if err != nil {
		return err
	}
	return d.Write(filepath.Join(string(d), digestsFile), data)
}
