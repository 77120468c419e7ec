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
// other users, unless Stays is set.
type Loose struct {
	Path   string
	Before fs.FileMode // the mode before Verify
	Secret bool        // the file contains a private key or another secret
	Stays  bool        // the file system has no Unix modes, so the permissions cannot be changed

	info fs.FileInfo
}

func (l Loose) String() string {
	if l.Stays {
		return fmt.Sprintf("%s has mode %04o whatever chmod says, as its file system has no Unix modes; if this machine has other users, keep the hive on another file system", l.Path, l.Before.Perm())
	}
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

func (e *TrustError) Error() string {
	return fmt.Sprintf("%s is not used: %v", e.Path, e.Err)
}

// Kind implements [failure.Classified].
func (e *TrustError) Kind() failure.Kind { return failure.Usage }

func (e *TrustError) Unwrap() error { return e.Err }

// Hint returns what the user can do to make the state folder safe.
func (e *TrustError) Hint() string { return e.fix }

// Verify checks which users can write to the state folder, because its contents decide which machines are removed and which host keys
// are accepted. It returns a [*TrustError] if a file or folder does not belong to the current user, to root, or to the owner of the
// hive's folder, or if other users could write to it. If other users could only read a file or search a folder, Verify removes these
// permissions and returns the file or folder. A state folder that is missing or unreadable is no error.
//
// On a file system without Unix modes, chmod has no effect. Verify then accepts the files and folders of
// the current user, and returns only the first of them, with Stays set.
func (d Dir) Verify() ([]Loose, error) { return verifyFolder(d, (*os.File).Chmod) }

// verifyFolder does what Verify does. Tests replace chmod.
func verifyFolder(d Dir, chmod func(*os.File, fs.FileMode) error) ([]Loose, error) {
	v := &verifier{owners: []int{0, os.Geteuid()}, chmod: chmod}
	top := filepath.Dir(string(d))
	if info, err := os.Stat(filepath.Dir(top)); err == nil {
		// Trust the owner of the hive's folder, who can replace the hive and the state folder anyway.
		v.owners = append(v.owners, ownerOf(info))
	}
	err := v.checkAll(top, string(d))
	if err == nil { // only if the folder is accepted: a refused folder stays unchanged, so that the next run also refuses it
		err = v.tightenAll()
	}
	var trust *TrustError
	switch {
	case err == nil:
		return v.loose, nil
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		return nil, nil
	case errors.As(err, &trust):
		return nil, trust
	}
	return nil, &FolderError{d, err}
}

// verifier checks the owners and modes of the files and folders of the state.
type verifier struct {
	owners []int   // ids of the users that may own the files
	loose  []Loose // files and folders to which users other than the owner had access
	chmod  func(*os.File, fs.FileMode) error
}

// folders are the names of the folders in a cluster's state folder. Each may be a symbolic link to a folder.
var folders = []string{"runs", "gcroots", "secrets"}

// publicFiles are the files in the state folder of a cluster that contain no secrets.
var publicFiles = []string{"lock", "state.json", "runtime.json", "known_hosts", "images.json", "exports.json"}

// checkAll checks dir, the state folder of the cluster. It also checks top, the folder with the state folders of all
// clusters of the hive.
func (v *verifier) checkAll(top, dir string) error {
	info, err := v.statFolder(top)
	if err != nil {
		return err
	}
	if err := v.checkAccess(top, info, true); err != nil {
		return err
	}
	open, err := v.checkFolder(dir, false, isSearchable(info))
	if err != nil {
		return err
	}
	if err := v.checkEntries(dir, false, open); err != nil {
		return err
	}
	for _, name := range folders {
		// The folders of public files are checked without their files: other users who have no access to the folder
		// cannot access its files.
		path, secret := filepath.Join(dir, name), name == "secrets"
		open, err := v.checkFolder(path, secret, open)
		if err == nil && secret {
			err = v.checkEntries(path, true, open)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// checkEntries checks the files in a cluster's state folder, or everything in a folder of secrets. Files of the state folder
// that are not in publicFiles are kubeconfigs and other access files. Hidden files of the state folder are left out, because
// they are temporary.
func (v *verifier) checkEntries(dir string, inSecrets, open bool) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		secret := inSecrets || !slices.Contains(publicFiles, e.Name())
		if !inSecrets && (secret && e.IsDir() || slices.Contains(folders, e.Name()) || strings.HasPrefix(e.Name(), ".")) {
			continue
		}
		info, err := e.Info()
		switch {
		case errors.Is(err, fs.ErrNotExist): // nothing to check: another process has just replaced or deleted the file
		case err != nil:
			return err
		case inSecrets && e.IsDir():
			below, err := v.checkFolder(path, true, open)
			if err == nil {
				err = v.checkEntries(path, true, below)
			}
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		default:
			if err := durable.CheckRegular(info); err != nil {
				return &TrustError{path, err, "nixbench did not make it; find out who did, and remove it"}
			}
			if err := v.checkAccess(path, info, open); err != nil {
				return err
			}
			v.noteLoose(path, info, secret)
		}
	}
	return nil
}

// statFolder returns the FileInfo of a folder. The path may be a symbolic link, so that the state can be on
// another disk, but only if the link belongs to one of v.owners.
func (v *verifier) statFolder(path string) (fs.FileInfo, error) {
	info, err := os.Lstat(path)
	if err == nil && info.Mode()&fs.ModeSymlink != 0 {
		if !slices.Contains(v.owners, ownerOf(info)) {
			return nil, v.newOwnerError(path, info)
		}
		info, err = os.Stat(path)
	}
	if err == nil && !info.IsDir() {
		err = &TrustError{path, errors.New("it is not a folder"), "nixbench did not make it; find out who did, and remove it"}
	}
	return info, err
}

// checkFolder checks a folder of the state. open means that other users have access to the parent folder. secret means that the folder
// contains secrets. The bool result reports whether other users have access to the contents of the folder.
func (v *verifier) checkFolder(path string, secret, open bool) (bool, error) {
	info, err := v.statFolder(path)
	if err != nil {
		return false, err
	}
	if err := v.checkAccess(path, info, open); err != nil {
		return false, err
	}
	v.noteLoose(path, info, secret)
	return open && isSearchable(info), nil
}

// isSearchable reports whether other users have the search permission (x) of a folder.
func isSearchable(dir fs.FileInfo) bool { return dir.Mode().Perm()&0o011 != 0 }

// checkAccess returns an error if a file or folder belongs to none of v.owners, or if other users could
// write to it.
func (v *verifier) checkAccess(path string, info fs.FileInfo, open bool) error {
	if !slices.Contains(v.owners, ownerOf(info)) {
		return v.newOwnerError(path, info)
	}
	if open && info.Mode().Perm()&0o022 != 0 {
		if stays, _ := v.tighten(path, info, true); !stays {
			return &TrustError{path, fmt.Errorf("other users can write to it (mode %04o), so that it may not be what nixbench wrote", info.Mode().Perm()),
				"if no other user can have changed it: chmod -R go-rwx " + shellescape.Quote(path)}
		}
	}
	return nil
}

func (v *verifier) newOwnerError(path string, info fs.FileInfo) error {
	return &TrustError{path, fmt.Errorf("it belongs to user %d, and user %d runs nixbench", ownerOf(info), os.Geteuid()),
		fmt.Sprintf("run nixbench as that user; or, if you know that everything in it is yours: chown -R %d %s", os.Geteuid(), shellescape.Quote(path))}
}

// noteLoose adds a path to v.loose if other users have permissions for it.
func (v *verifier) noteLoose(path string, info fs.FileInfo, secret bool) {
	if info.Mode().Perm()&0o077 != 0 {
		v.loose = append(v.loose, Loose{Path: path, Before: info.Mode(), Secret: secret && !info.IsDir(), info: info})
	}
}

// tightenAll removes the permissions of other users from all files in v.loose. Of the files for which chmod has no effect,
// only the first stays in v.loose.
func (v *verifier) tightenAll() error {
	changed, hasStaying := v.loose[:0], false
	for _, l := range v.loose {
		var err error
		if l.Stays, err = v.tighten(l.Path, l.info, false); err != nil {
			return err
		}
		if !l.Stays || !hasStaying {
			changed = append(changed, l)
		}
		hasStaying = hasStaying || l.Stays
	}
	v.loose = changed
	return nil
}

// tighten removes the permissions of other users from a file or folder. If restore is set, tighten adds these permissions again. The
// result stays means that the file belongs to the current user and chmod had no effect, because the file system has no Unix modes.
func (v *verifier) tighten(path string, info fs.FileInfo, restore bool) (stays bool, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return false, err
	}
	defer f.Close()
	now, err := f.Stat()
	if err != nil || !os.SameFile(now, info) {
		return false, err // another process has replaced the file
	}
	failed := v.chmod(f, info.Mode().Perm()&^0o077)
	if now, err = f.Stat(); err == nil && now.Mode() == info.Mode() && ownerOf(now) == os.Geteuid() {
		return true, nil // not an error: a file system without modes may refuse chmod
	}
	if restore {
		_ = v.chmod(f, info.Mode().Perm())
	}
	return false, errors.Join(failed, err)
}

func ownerOf(info fs.FileInfo) int {
	return int(info.Sys().(*syscall.Stat_t).Uid)
}
