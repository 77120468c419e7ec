package bench

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nixbench/nixbench/deploy/durable"
)

// maxSource is the maximum size in bytes of the copied source of a hive.
const maxSource = 256 << 20

// Source is a copy of the files that a hive may read.
type Source struct {
	Folder    string   // the hive's folder in the copy
	Hash      string   // hash of all files of the copy
	Untracked []string // files in the copy that git does not track
}

// CopySource copies the files that the hive in the folder from may read. In a git repository, these are all files of the repository that
// git does not ignore. With onlyTracked, which is set for a flake, they are the files that git tracks. Without a repository, they are the
// files in the folder.
func CopySource(ctx context.Context, from, to string, onlyTracked bool) (Source, error) {
	from, err := filepath.EvalSymlinks(from)
	if err != nil {
		return Source{}, err
	}
	root, files, s, err := listSource(ctx, from, onlyTracked)
	if err != nil {
		return s, err
	}
	sum := sha256.New()
	total := int64(0)
	for _, file := range files {
		size, err := copyFile(filepath.Join(root, file), filepath.Join(to, file), file, sum)
		if err != nil {
			return s, err
		}
		if total += size; total > maxSource {
			return s, fmt.Errorf("%s has more than %d MiB of files, and a sweep keeps a copy; ignore those that the hive does not need in .gitignore, or move the hive to a folder of its own", root, maxSource>>20)
		}
	}
	s.Hash = "sha256:" + hex.EncodeToString(sum.Sum(nil))
	s.Folder, err = filepath.Rel(root, from)
	return s, err
}

// listSource returns the files to copy. Their paths are relative to root: the git repository of the folder from, or the folder itself.
func listSource(ctx context.Context, from string, onlyTracked bool) (root string, files []string, s Source, err error) {
	top, err := exec.CommandContext(ctx, "git", "-C", from, "rev-parse", "--show-toplevel").Output()
	if err != nil {
		files, err = listFolder(from)
		return from, files, s, err
	}
	root = strings.TrimSuffix(string(top), "\n")
	if files, err = gitFiles(ctx, root, "--cached"); err == nil && !onlyTracked {
		s.Untracked, err = gitFiles(ctx, root, "--others", "--exclude-standard")
	}
	files = append(files, s.Untracked...)
	slices.Sort(files)
	return root, slices.Compact(files), s, err
}

// gitFiles returns the paths that `git ls-files` with these flags prints, if the files exist. It leaves out submodules.
func gitFiles(ctx context.Context, root string, flags ...string) ([]string, error) {
	out, err := exec.CommandContext(ctx, "git", append([]string{"-C", root, "ls-files", "-z"}, flags...)...).Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files in %s: %w", root, err)
	}
	var files []string
	for _, name := range bytes.Split(out, []byte{0}) {
		if info, err := os.Lstat(filepath.Join(root, string(name))); err == nil && len(name) > 0 && !info.IsDir() && !isExcluded(string(name)) {
			files = append(files, string(name))
		}
	}
	return files, nil
}

// isExcluded reports whether a file is in a folder that is not copied, such as .git.
func isExcluded(name string) bool {
	return slices.ContainsFunc(strings.Split(name, "/"), func(part string) bool { return excluded[part] })
}

// listFolder returns the files in a folder. It leaves out folders that contain a sweep, such as the repetition of an archive.
func listFolder(from string) ([]string, error) {
	var files []string
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if excluded[d.Name()] || path != from && durable.Exists(filepath.Join(path, "sweep.json")) {
				return fs.SkipDir
			}
			return nil
		}
		name, err := filepath.Rel(from, path)
		files = append(files, name)
		return err
	})
	slices.Sort(files)
	return files, err
}

// copyFile copies a file or a symbolic link, and writes the name, the kind and the content of the file to the hash sum.
func copyFile(from, to, name string, sum io.Writer) (int64, error) {
	info, err := os.Lstat(from)
	if err != nil {
		return 0, err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return 0, err
	}
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := os.Readlink(from)
		if err != nil {
			return 0, err
		}
		fmt.Fprintf(sum, "link %q %q\n", name, target)
		return 0, os.Symlink(target, to)
	case !info.Mode().IsRegular():
		return 0, nil // skip sockets and other special files, which Nix cannot read either
	}
	data, err := durable.Read(from, maxSource)
	if err != nil {
		return 0, err
	}
	mode := fs.FileMode(0o644)
	if info.Mode()&0o100 != 0 {
		mode = 0o755
	}
	fmt.Fprintf(sum, "file %q %o %d\n", name, mode, len(data))
	_, _ = sum.Write(data)
	return info.Size(), os.WriteFile(to, data, mode)
}

// TrackSource makes the folder, a copy of a source, a git repository that tracks all files of the folder. Nix needs this for a flake.
func TrackSource(ctx context.Context, folder string) error {
	for _, args := range [][]string{{"init", "--quiet"}, {"add", "--all", "--force"}} {
		if out, err := exec.CommandContext(ctx, "git", append([]string{"-C", folder}, args...)...).CombinedOutput(); err != nil {
			return errors.New("git " + args[0] + " in the copy of the source: " + strings.TrimSpace(string(out)))
		}
	}
	return nil
}
