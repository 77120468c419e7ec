package bench

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
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

// maxSource limits the size of the copied source.
const maxSource = 256 << 20

// CopySource copies the files that the hive in a folder may read into the folder `to`: those that git tracks or does not ignore in the
// repository of the folder, or else all files in the folder. It returns the path of the folder's copy relative to `to`, and a hash of all
// copied files.
func CopySource(ctx context.Context, from, to string) (folder, hash string, err error) {
	from, err = filepath.EvalSymlinks(from)
	if err != nil {
		return "", "", err
	}
	root, files, err := sourceFiles(ctx, from)
	if err != nil {
		return "", "", err
	}
	sum := sha256.New()
	total := int64(0)
	for _, file := range files {
		size, err := copyFile(filepath.Join(root, file), filepath.Join(to, file), file, sum)
		if err != nil {
			return "", "", err
		}
		if total += size; total > maxSource {
			return "", "", fmt.Errorf("%s has more than %d MiB of files, and a sweep keeps a copy; ignore those that the hive does not need in .gitignore, or move the hive to a folder of its own", root, maxSource>>20)
		}
	}
	folder, err = filepath.Rel(root, from)
	return folder, "sha256:" + hex.EncodeToString(sum.Sum(nil)), err
}

// sourceFiles returns the files to copy, relative to a folder.
func sourceFiles(ctx context.Context, from string) (root string, files []string, err error) {
	top, err := exec.CommandContext(ctx, "git", "-C", from, "rev-parse", "--show-toplevel").Output()
	if err == nil {
		root = strings.TrimSuffix(string(top), "\n")
		out, err := exec.CommandContext(ctx, "git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
		if err != nil {
			return "", nil, fmt.Errorf("git ls-files in %s: %w", root, err)
		}
		for _, name := range bytes.Split(out, []byte{0}) {
			if info, err := os.Lstat(filepath.Join(root, string(name))); err == nil && len(name) > 0 && !info.IsDir() { // not deleted, and no submodule
				files = append(files, string(name))
			}
		}
	} else {
		root = from
		err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if d.IsDir() && (d.Name() == ".nixbench" || d.Name() == ".git") {
				return fs.SkipDir
			}
			if !d.IsDir() {
				name, err := filepath.Rel(from, path)
				files = append(files, name)
				return err
			}
			return nil
		})
		if err != nil {
			return "", nil, err
		}
	}
	slices.Sort(files)
	return root, slices.Compact(files), nil
}

// copyFile copies a file or a symbolic link, and adds its name, kind and content to sum.
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
		return 0, nil // Nix cannot read it either
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
