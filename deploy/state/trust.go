package state

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"al.essio.dev/pkg/shellescape"

	"github.com/nixbench/nixbench/deploy/failure"
)

type TrustError struct {
	Path string
	Err  error
	fix  string
}

func (e *TrustError) Error() string    { return fmt.Sprintf("%s is not used: %v", e.Path, e.Err) }
func (e *TrustError) Unwrap() error    { return e.Err }
func (*TrustError) Kind() failure.Kind { return failure.Usage }
func (e *TrustError) Hint() string     { return e.fix }

// Verify checks that no other user can have written to the state folder, because its contents decide which machines are removed and
// which host keys are accepted. It returns a [*TrustError] if the folder, or the folder with the state folders of all clusters, does not
// belong to the current user, to root, or to the owner of the hive's folder, or if other users can write to it. If other users can read
// the state folder, Verify removes their access to it, and so to all files in it. A state folder that is missing or unreadable is no
// error.
func (d Dir) Verify() error {
	top := filepath.Dir(string(d))
	owners := []int{0, os.Geteuid()}
	if info, err := os.Stat(filepath.Dir(top)); err == nil {
		owners = append(owners, ownerOf(info)) // the owner of the hive's folder can replace the hive and the state folder anyway
	}
	err := verifyFolder(top, owners)
	if err == nil {
		err = verifyFolder(string(d), owners)
	}
	if info, statErr := os.Stat(string(d)); err == nil && statErr == nil && info.Mode().Perm()&0o077 != 0 {
		err = os.Chmod(string(d), info.Mode().Perm()&^0o077)
	}
	switch trust := (*TrustError)(nil); {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		return nil
	case err == nil, errors.As(err, &trust):
		return err
	}
	return d.Error(err)
}

// verifyFolder returns a [*TrustError] if a folder does not belong to one of the owners, or if other users can write to it. The path may
// be a symbolic link of an owner, so that the folder can be on another disk.
func verifyFolder(path string, owners []int) error {
	for _, stat := range []func(string) (fs.FileInfo, error){os.Lstat, os.Stat} {
		info, err := stat(path)
		if err != nil {
			return err
		}
		isLink := info.Mode().Type() == fs.ModeSymlink
		switch owner := ownerOf(info); {
		case !isLink && !info.IsDir():
			return &TrustError{path, errors.New("it is not a folder"), "nixbench did not make it; find out who did, and remove it"}
		case !slices.Contains(owners, owner):
			return &TrustError{path, fmt.Errorf("it belongs to user %d, and user %d runs nixbench", owner, os.Geteuid()),
				fmt.Sprintf("run nixbench as that user; or, if you know that everything in it is yours: chown -R %d %s", os.Geteuid(), shellescape.Quote(path))}
		case !isLink && info.Mode().Perm()&0o022 != 0:
			return &TrustError{path, fmt.Errorf("other users can write to it (mode %04o), so that it may not be what nixbench wrote", info.Mode().Perm()),
				"if no other user can have changed it: chmod -R go-rwx " + shellescape.Quote(path) + "; on a file system where chmod has no effect, nixbench cannot be used"}
		}
	}
	return nil
}

func ownerOf(info fs.FileInfo) int { return int(info.Sys().(*syscall.Stat_t).Uid) }
