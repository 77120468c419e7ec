package state

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"al.essio.dev/pkg/shellescape"
	"golang.org/x/sys/unix"

	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/failure"
)

// Loose is a file or folder of the state folder to which other users had access. Verify has removed the permissions of
// other users.
type Loose struct {
	Path   string
	Before fs.FileMode // the mode before Verify
	Secret bool        // the file contains a private key or another secret
}

func (l Loose) String() string {
	text := fmt.Sprintf("%s had mode %04o, and other users have no access to it any more", l.Path, l.Before.Perm())
	if l.Secret {
		text += "; it is secret: if other users may have read it, replace it"
	}
	return text
}

// TrustError means that another user may have written files of the state folder.
type TrustError struct {
	Path string
	Err  error
	fix  string
}

func (e *TrustError) Error() string { return fmt.Sprintf("%s is not used: %v", e.Path, e.Err) }
func (e *TrustError) Unwrap() error { return e.Err }

// Kind implements [failure.Classified].
func (e *TrustError) Kind() failure.Kind { return failure.Usage }

// Hint returns what the user can do to make the state folder safe.
func (e *TrustError) Hint() string { return e.fix }

// Verify checks which users can write to the state folder, because its contents decide which machines are removed and which host keys
// are accepted. It returns a [*TrustError] if a file or folder does not belong to the current user, to root, or to the owner of the
// hive's folder, or if other users could write to it. If other users could only read a file or search a folder, Verify removes these
// permissions and returns the file or folder. A state folder that is missing or unreadable is no error.
func (d Dir) Verify() ([]Loose, error) {
	top := filepath.Dir(string(d)) // the folder with the state folders of all clusters of the hive
	owners := []int{0, os.Geteuid()}
	if info, err := os.Stat(filepath.Dir(top)); err == nil {
		owners = append(owners, ownerOf(info)) // the owner of the hive's folder can replace the hive and the state folder anyway
	}
	entries, err := listEntries(top, string(d))
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
		return nil, newVerifyError(d, err)
	}
	for _, e := range entries {
		if owner := ownerOf(e.info); !slices.Contains(owners, owner) {
			return nil, &TrustError{e.path, fmt.Errorf("it belongs to user %d, and user %d runs nixbench", owner, os.Geteuid()),
				fmt.Sprintf("run nixbench as that user; or, if you know that everything in it is yours: chown -R %d %s", os.Geteuid(), shellescape.Quote(e.path))}
		}
		if e.allows(0o022) {
			return nil, &TrustError{e.path, fmt.Errorf("other users can write to it (mode %04o), so that it may not be what nixbench wrote", e.info.Mode().Perm()),
				"if no other user can have changed it: chmod -R go-rwx " + shellescape.Quote(e.path) + "; on a file system where chmod has no effect, nixbench cannot be used"}
		}
	}
	var changed []Loose // a folder that was refused above stays unchanged, so that the next run also refuses it
	for _, e := range entries {
		if e.path == top || !e.allows(0o077) {
			continue
		}
		if err := tighten(e); err != nil {
			return nil, newVerifyError(d, err)
		}
		changed = append(changed, Loose{Path: e.path, Before: e.info.Mode(), Secret: e.secret})
	}
	return changed, nil
}

func newVerifyError(d Dir, err error) error {
	if trust := (*TrustError)(nil); errors.As(err, &trust) {
		return trust
	}
	return &FolderError{d, err}
}

// entry is a file or folder whose owner and permissions are checked, or a link to a folder.
type entry struct {
	path   string
	info   fs.FileInfo
	secret bool // contains a private key or another secret
}

// allows reports whether the file or folder has at least one of these permissions. The mode of a link has no meaning.
func (e entry) allows(permissions fs.FileMode) bool {
	return e.info.Mode().Perm()&permissions != 0 && e.info.Mode().Type() != fs.ModeSymlink
}

// publicFiles are the files in the state folder of a cluster that contain no secrets. Other files are kubeconfigs and other
// access files.
var publicFiles = []string{"lock", "state.json", "runtime.json", "known_hosts", "exports.json"}

// listEntries returns the folders of the state, the files in dir, and everything in the folder of secrets. Parents come before their
// children. The folders of public files are returned without their files: other users who have no access to the folder cannot access
// its files. Hidden files in dir are left out, because they are temporary.
func listEntries(top, dir string) (out []entry, err error) {
	// addFolder adds a folder. Its path may be a symbolic link, so that the state can be on another disk.
	addFolder := func(path string) error {
		info, err := os.Lstat(path)
		if err == nil && info.Mode().Type() == fs.ModeSymlink {
			out = append(out, entry{path, info, false})
			info, err = os.Stat(path)
		}
		if err == nil && !info.IsDir() {
			err = &TrustError{path, errors.New("it is not a folder"), "nixbench did not make it; find out who did, and remove it"}
		}
		if err == nil {
			out = append(out, entry{path, info, false})
		}
		return err
	}
	addFile := func(path string, e fs.DirEntry, secret bool) error {
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil // another process has just replaced or deleted the file
		}
		if err != nil {
			return err
		}
		if err := durable.CheckRegular(info); err != nil && !info.IsDir() {
			return &TrustError{path, err, "nixbench did not make it; find out who did, and remove it"}
		}
		out = append(out, entry{path, info, secret})
		return nil
	}
	for _, folder := range []string{top, dir} {
		if err := addFolder(folder); err != nil {
			return out, err
		}
	}
	children, err := os.ReadDir(dir)
	if err != nil {
		return out, err
	}
	for _, e := range children {
		path := filepath.Join(dir, e.Name())
		switch e.Name() {
		case "secrets":
			if err = addFolder(path); err == nil {
				err = fs.WalkDir(os.DirFS(path), ".", func(name string, e fs.DirEntry, err error) error {
					if err != nil || name == "." {
						return err
					}
					return addFile(filepath.Join(path, name), e, !e.IsDir())
				})
			}
		case "runs", "gcroots":
			err = addFolder(path)
		default:
			if !e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
				err = addFile(path, e, !slices.Contains(publicFiles, e.Name()))
			}
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return out, err
		}
	}
	return out, nil
}

// tighten removes the permissions of other users from a file or folder.
func tighten(e entry) error {
	f, err := os.OpenFile(e.path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // another process has deleted the file
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if now, err := f.Stat(); err != nil || !os.SameFile(now, e.info) {
		return err // another process has replaced the file
	}
	return f.Chmod(e.info.Mode().Perm() &^ 0o077)
}

func ownerOf(info fs.FileInfo) int { return int(info.Sys().(*syscall.Stat_t).Uid) }
