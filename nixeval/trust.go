package nixeval

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"github.com/nixbench/nixbench/deploy/failure"
)

// CheckTrust returns a usage error if another user could have written a file that decides what runs: a hive that nixbench has found by
// itself, because a hive chooses programs that run here, or the list of the signers of plans. The file, its folder and all folders above must belong to the user, to
// root, or to the user who has called sudo. Others must not be able to write to them. A folder with the sticky bit is allowed,
// because others cannot replace such files in it.
func CheckTrust(file string) error {
	real, err := filepath.EvalSymlinks(file)
	if err != nil {
		return err
	}
	trusted := []uint32{0, uint32(os.Geteuid())}
	if id, err := strconv.ParseUint(os.Getenv("SUDO_UID"), 10, 32); err == nil && os.Geteuid() == 0 {
		trusted = append(trusted, uint32(id))
	}
	if top, err := os.Stat("/"); err == nil {
		trusted = append(trusted, statOf(top).Uid) // also the owner of the root folder: root has another number in a user namespace
	}
	for _, path := range append(andAbove(file), andAbove(real)...) {
		info, err := os.Lstat(path)
		if err == nil {
			err = checkWriters(info, trusted)
		}
		if err != nil {
			return failure.NewUsage("%s is not used: %s: %v", file, path, err)
		}
	}
	return nil
}

// checkWriters returns an error if users other than the trusted ones can write to a file or folder.
func checkWriters(info fs.FileInfo, trusted []uint32) error {
	stat, mode := statOf(info), info.Mode()
	if !slices.Contains(trusted, stat.Uid) {
		return fmt.Errorf("it belongs to user %d, and user %d runs nixbench", stat.Uid, os.Geteuid())
	}
	groupWrites := mode.Perm()&0o020 != 0 && stat.Gid != stat.Uid // a group with the same number as the user contains only this user
	switch {
	case mode&fs.ModeSymlink != 0, mode.IsDir() && mode&fs.ModeSticky != 0:
		return nil
	case mode.Perm()&0o002 != 0 || groupWrites:
		return fmt.Errorf("it belongs to user %d, and others can write to it (mode %04o)", stat.Uid, mode.Perm())
	}
	return nil
}

func statOf(info fs.FileInfo) *syscall.Stat_t { return info.Sys().(*syscall.Stat_t) }
