package suite

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Hash returns a hash of the subject: of the names, modes and content of its files in the working tree, also of those
// that git does not track yet. Ignored files and the record are excluded.
func (s Suite) Hash(root string) (string, error) {
	args := append([]string{"-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--"}, s.Subject...)
	list, err := exec.Command("git", args...).Output()
	if err != nil {
		return "", fmt.Errorf("git ls-files in %s: %w", root, err)
	}
	files := strings.Split(strings.TrimSuffix(string(list), "\x00"), "\x00")
	slices.Sort(files)
	sum := sha256.New()
	for _, file := range slices.Compact(files) {
		if file == s.RecordFile() {
			continue
		}
		content, mode, err := readFile(filepath.Join(root, file))
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted, and still in git's index
		}
		if err != nil {
			return "", err
		}
		fmt.Fprintf(sum, "%s %x %s\x00", mode, sha256.Sum256(content), file)
	}
	return fmt.Sprintf("sha256:%x", sum.Sum(nil)), nil
}

// readFile returns the content of a file, or the target of a link, and the part of the mode that git stores.
func readFile(path string) (content []byte, mode string, err error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, "", err
	}
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := os.Readlink(path)
		return []byte(target), "link", err
	case info.Mode()&0o100 != 0:
		mode = "program"
	default:
		mode = "file"
	}
	content, err = os.ReadFile(path)
	return content, mode, err
}
