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

	"golang.org/x/sys/unix"

	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/failure"
)

// Loose is a file or folder of the state whose permissions were too open and have been tightened.
type Loose struct {
	Path   string
	Before fs.FileMode
	Secret bool // it contains a private key or another secret
	Stays  bool // its file system has no Unix modes, so its permissions stay as they are

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

// Hint returns what the user can do.
func (e *TrustError) Hint() string { return e.fix }

// Verify checks which users can write to the state folder, because its contents decide which machines
// are removed and which host keys are accepted. The folders and files must belong to the current user, to
// root, or to the owner of the hive's folder, and other users must not have been able to write to them.
// Permissions that are wider than those that nixbench sets, but did not let another user write, are
// tightened; these files and folders are returned. A folder that is missing or unreadable is no error.
//
// On a file system without Unix modes, chmod has no effect. There the paths of the current user are
// accepted, and the first of them is returned.
func (d Dir) Verify() ([]Loose, error) { return d.verify((*os.File).Chmod) }

func (d Dir) verify(chmod func(*os.File, fs.FileMode) error) ([]Loose, error) {
	v := &verifier{owners: []int{0, os.Geteuid()}, chmod: chmod}
	top := filepath.Dir(string(d))
	if info, err := os.Stat(filepath.Dir(top)); err == nil {
		// The owner of the hive's folder can replace the hive and the state folder anyway.
		v.owners = append(v.owners, owner(info))
	}
	err := v.checkAll(top, string(d))
	for i := 0; err == nil && i < len(v.loose); i++ { // after all checks: a refused folder is left unchanged, so that the next run refuses it too
		v.loose[i].Stays, err = v.loose[i].tighten(chmod)
	}
	stays := 0
	v.loose = slices.DeleteFunc(v.loose, func(l Loose) bool {
		if l.Stays {
			stays++
		}
		return l.Stays && stays > 1 // one stands for all: they are on the same file system
	})
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

type verifier struct {
	owners []int // users that may own the files
	loose  []Loose
	chmod  func(*os.File, fs.FileMode) error
}

// checkAll checks a cluster's state folder dir, and top, the folder of all clusters' state.
func (v *verifier) checkAll(top, dir string) error {
	info, err := v.statFolder(top)
	if err != nil {
		return err
	}
	if err := v.checkAccess(top, info, true); err != nil {
		return err
	}
	open, err := v.checkFolder(dir, false, searchable(info))
	if err != nil {
		return err
	}
	for _, name := range []string{"lock", "state.json", "runtime.json", "known_hosts", "images.json", "kubeconfig"} {
		info, err := os.Lstat(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = v.checkFile(filepath.Join(dir, name), info, name == "kubeconfig", open)
		}
		if err != nil {
			return err
		}
	}
	// The files in these two folders can only be reached through them.
	for _, name := range []string{"runs", "gcroots"} {
		if _, err := v.checkFolder(filepath.Join(dir, name), false, open); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return v.checkSecrets(filepath.Join(dir, "secrets"), open)
}

// checkSecrets checks a folder of secrets and everything in it.
func (v *verifier) checkSecrets(dir string, open bool) error {
	open, err := v.checkFolder(dir, true, open)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		info, err := e.Info()
		switch {
		case errors.Is(err, fs.ErrNotExist): // another process has just replaced it
			continue
		case err != nil:
			return err
		case e.IsDir():
			err = v.checkSecrets(path, open)
		default:
			err = v.checkFile(path, info, true, open)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// statFolder returns the information about a folder. The path may be a link if a trusted user owns the link,
// so that the state can be on another disk.
func (v *verifier) statFolder(path string) (fs.FileInfo, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		if !slices.Contains(v.owners, owner(info)) {
			return nil, v.ownerError(path, info)
		}
		if info, err = os.Stat(path); err != nil {
			return nil, err
		}
	}
	if !info.IsDir() {
		return nil, &TrustError{path, errors.New("it is not a folder"), "nixbench did not make it; find out who did, and remove it"}
	}
	return info, nil
}

// checkFolder checks a folder of the state. open means that other users can reach the folder; the result
// reports whether they can reach what is in it.
func (v *verifier) checkFolder(path string, secret, open bool) (bool, error) {
	info, err := v.statFolder(path)
	if err != nil {
		return false, err
	}
	if err := v.checkAccess(path, info, open); err != nil {
		return false, err
	}
	v.noteLoose(path, info, secret)
	return open && searchable(info), nil
}

func (v *verifier) checkFile(path string, info fs.FileInfo, secret, open bool) error {
	if err := durable.CheckRegular(info); err != nil {
		return &TrustError{path, err, "nixbench did not make it; find out who did, and remove it"}
	}
	if err := v.checkAccess(path, info, open); err != nil {
		return err
	}
	v.noteLoose(path, info, secret)
	return nil
}

// searchable reports whether other users can reach the files in a folder.
func searchable(dir fs.FileInfo) bool { return dir.Mode().Perm()&0o011 != 0 }

// checkAccess refuses a path that has another owner, or to which other users could write.
func (v *verifier) checkAccess(path string, info fs.FileInfo, open bool) error {
	if !slices.Contains(v.owners, owner(info)) {
		return v.ownerError(path, info)
	}
	if open && info.Mode().Perm()&0o022 != 0 && !v.hasNoModes(path, info) {
		return &TrustError{path, fmt.Errorf("other users can write to it (mode %04o), so that it may not be what nixbench wrote", info.Mode().Perm()),
			"if no other user can have changed it: chmod -R go-rwx " + quoted(path)}
	}
	return nil
}

// hasNoModes reports whether chmod has no effect on a path of the current user. If chmod has an effect, the
// old permissions are restored.
func (v *verifier) hasNoModes(path string, info fs.FileInfo) bool {
	if owner(info) != os.Geteuid() {
		return false
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	now, err := f.Stat()
	if err != nil || !os.SameFile(now, info) {
		return false // replaced meanwhile
	}
	_ = v.chmod(f, info.Mode().Perm()&^0o077) // it may also be refused there
	if now, err = f.Stat(); err != nil {
		return false
	}
	if now.Mode() == info.Mode() {
		return true
	}
	_ = v.chmod(f, info.Mode().Perm())
	return false
}

func (v *verifier) ownerError(path string, info fs.FileInfo) error {
	return &TrustError{path, fmt.Errorf("it belongs to user %d, and user %d runs nixbench", owner(info), os.Geteuid()),
		fmt.Sprintf("run nixbench as that user; or, if you know that everything in it is yours: chown -R %d %s", os.Geteuid(), quoted(path))}
}

// noteLoose adds a path with permissions for other users to those that are tightened.
func (v *verifier) noteLoose(path string, info fs.FileInfo, secret bool) {
	if info.Mode().Perm()&0o077 != 0 {
		v.loose = append(v.loose, Loose{Path: path, Before: info.Mode(), Secret: secret && !info.IsDir(), info: info})
	}
}

// tighten removes the permissions of other users. It reports whether chmod has had no effect.
func (l Loose) tighten(chmod func(*os.File, fs.FileMode) error) (bool, error) {
	f, err := os.OpenFile(l.Path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return false, err
	}
	defer f.Close()
	now, err := f.Stat()
	if err != nil || !os.SameFile(now, l.info) {
		return false, err // replaced meanwhile
	}
	failed := chmod(f, l.Before.Perm()&^0o077)
	if now, err = f.Stat(); err == nil && now.Mode() == l.Before && owner(now) == os.Geteuid() {
		return true, nil
	}
	return false, errors.Join(failed, err)
}

func owner(info fs.FileInfo) int {
	return int(info.Sys().(*syscall.Stat_t).Uid)
}

// quoted quotes a path for a shell.
func quoted(path string) string { return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'" }
