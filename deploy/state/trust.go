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
)

// Loose is something in the state folder that was open to other users, and no longer is.
type Loose struct {
	Path   string
	Before fs.FileMode
	Secret bool // it is a private key or the like
	Stays  bool // its file system has no Unix modes, so that it is as open as before

	info fs.FileInfo
}

func (l Loose) String() string {
	if l.Stays {
		return fmt.Sprintf("%s has mode %04o whatever chmod says, as its file system has no Unix modes; if this machine has other users, keep the hive on another file system", l.Path, l.Before.Perm())
	}
	text := fmt.Sprintf("%s had mode %04o, and is closed to other users again", l.Path, l.Before.Perm())
	if l.Secret {
		text += "; it is secret: if other users could read it, it is no longer"
	}
	return text
}

// TrustError says that somebody else can have written what is in the state folder.
type TrustError struct {
	Path string
	Err  error
	fix  string
}

func (e *TrustError) Error() string {
	return fmt.Sprintf("%s is not used: %v", e.Path, e.Err)
}

func (e *TrustError) Unwrap() error { return e.Err }

// Hint says what to do about it.
func (e *TrustError) Hint() string { return e.fix }

// Verify checks who can write to the state folder, as what is in it decides which machines are
// removed and whose keys are accepted. The folders and files must belong to us, to root, or to the owner
// of the folder that the hive is in, and other users must not have been able to write to them. What
// is looser than nixbench makes it, without having been in reach, is tightened, and returned. A
// folder that is not there is fine, and so is one that we may not read: then it is not used.
//
// On a file system without Unix modes, where chmod has no effect, what is ours is used, and the first
// such path is returned.
func (d Dir) Verify() ([]Loose, error) { return d.verify((*os.File).Chmod) }

func (d Dir) verify(chmod func(*os.File, fs.FileMode) error) ([]Loose, error) {
	v := &verifier{owners: []int{0, os.Geteuid()}, chmod: chmod}
	top := filepath.Dir(string(d))
	if info, err := os.Stat(filepath.Dir(top)); err == nil {
		// They could put another state folder in its place, or another hive.
		v.owners = append(v.owners, owner(info))
	}
	err := v.all(top, string(d))
	for i := 0; err == nil && i < len(v.loose); i++ { // not before all is judged: who is refused now is refused again
		v.loose[i].Stays, err = v.loose[i].tighten(chmod)
	}
	stays := 0
	v.loose = slices.DeleteFunc(v.loose, func(l Loose) bool {
		if l.Stays {
			stays++
		}
		return l.Stays && stays > 1 // one says it for all
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
	owners []int // who may own what is there
	loose  []Loose
	chmod  func(*os.File, fs.FileMode) error
}

// all begins with the folder that holds the state of all clusters.
func (v *verifier) all(top, dir string) error {
	info, err := v.directory(top)
	if err != nil {
		return err
	}
	if err := v.judge(top, info, true); err != nil {
		return err
	}
	open, err := v.folder(dir, false, inReach(info))
	if err != nil {
		return err
	}
	for _, name := range []string{"lock", "state.json", "runtime.json", "known_hosts", "images.json", "kubeconfig"} {
		info, err := os.Lstat(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = v.file(filepath.Join(dir, name), info, name == "kubeconfig", open)
		}
		if err != nil {
			return err
		}
	}
	// What is in these two is only found through them.
	for _, name := range []string{"runs", "gcroots"} {
		if _, err := v.folder(filepath.Join(dir, name), false, open); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return v.secrets(filepath.Join(dir, "secrets"), open)
}

// secrets checks the folder of secrets, and those in it.
func (v *verifier) secrets(dir string, open bool) error {
	open, err := v.folder(dir, true, open)
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
			err = v.secrets(path, open)
		default:
			err = v.file(path, info, true, open)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// directory looks at a folder. It may be a link, if whoever made that is trusted: the hive's owner may want the
// state on another disk.
func (v *verifier) directory(path string) (fs.FileInfo, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		if !slices.Contains(v.owners, owner(info)) {
			return nil, v.stranger(path, info)
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

// folder checks a folder of the state. open says whether others can come as far as to it, and, in the
// answer, into it.
func (v *verifier) folder(path string, secret, open bool) (bool, error) {
	info, err := v.directory(path)
	if err != nil {
		return false, err
	}
	if err := v.judge(path, info, open); err != nil {
		return false, err
	}
	v.note(path, info, secret)
	return open && inReach(info), nil
}

func (v *verifier) file(path string, info fs.FileInfo, secret, open bool) error {
	if err := durable.Regular(info); err != nil {
		return &TrustError{path, err, "nixbench did not make it; find out who did, and remove it"}
	}
	if err := v.judge(path, info, open); err != nil {
		return err
	}
	v.note(path, info, secret)
	return nil
}

func inReach(dir fs.FileInfo) bool { return dir.Mode().Perm()&0o011 != 0 }

// judge refuses what has another owner, or what others could write to.
func (v *verifier) judge(path string, info fs.FileInfo, open bool) error {
	if !slices.Contains(v.owners, owner(info)) {
		return v.stranger(path, info)
	}
	if open && info.Mode().Perm()&0o022 != 0 && !v.modeless(path, info) {
		return &TrustError{path, fmt.Errorf("other users can write to it (mode %04o), so that it may not be what nixbench wrote", info.Mode().Perm()),
			"if no other user can have changed it: chmod -R go-rwx " + quoted(path)}
	}
	return nil
}

// modeless tells whether chmod has no effect on a path of ours. Where it has one, it is taken back.
func (v *verifier) modeless(path string, info fs.FileInfo) bool {
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

func (v *verifier) stranger(path string, info fs.FileInfo) error {
	return &TrustError{path, fmt.Errorf("it belongs to user %d, and user %d runs nixbench", owner(info), os.Geteuid()),
		fmt.Sprintf("run nixbench as that user; or, if you know that everything in it is yours: chown -R %d %s", os.Geteuid(), quoted(path))}
}

// note has what others may use tightened.
func (v *verifier) note(path string, info fs.FileInfo, secret bool) {
	if info.Mode().Perm()&0o077 != 0 {
		v.loose = append(v.loose, Loose{Path: path, Before: info.Mode(), Secret: secret && !info.IsDir(), info: info})
	}
}

// tighten tells whether the mode stays as it was all the same.
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

// quoted is a path for a shell.
func quoted(path string) string { return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'" }
