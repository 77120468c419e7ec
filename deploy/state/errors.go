package state

import (
	"cmp"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/nixbench/nixbench/deploy/failure"
)

type LockedError struct {
	Dir    Dir
	Holder Holder // the process that holds the lock; empty if the lock file does not contain it
}

func (e *LockedError) Error() string {
	if e.Holder == (Holder{}) {
		return fmt.Sprintf("the cluster is locked by another process (state folder %s)", e.Dir)
	}
	return fmt.Sprintf("the cluster is locked by nixbench %s: the lock is held by %s since %s", e.Holder.Command, e.Holder.Process(), e.Holder.Started.UTC().Format("2006-01-02 15:04:05 UTC"))
}

func (*LockedError) Kind() failure.Kind { return failure.Locked }

func (*LockedError) Hint() string {
	return "wait until it is done; the lock ends with its process, so there is nothing to remove"
}

type FolderError struct {
	Dir Dir
	Err error
}

func (e *FolderError) Error() string    { return fmt.Sprintf("state folder %s: %v", e.Dir, e.Err) }
func (e *FolderError) Unwrap() error    { return e.Err }
func (*FolderError) Kind() failure.Kind { return failure.StateFolder }

func (e *FolderError) Hint() string {
	switch {
	case errors.Is(e.Err, errNoLocks):
		return "keep the hive on a local disk"
	case errors.Is(e.Err, unix.EROFS):
		return "the file system is read-only; work on a copy of the hive"
	case errors.Is(e.Err, os.ErrPermission):
		return "the folder must be writable by the user who runs nixbench"
	case errors.Is(e.Err, unix.ENOSPC), errors.Is(e.Err, unix.EDQUOT):
		return "free space on the disk; files written before are complete"
	}
	return ""
}

var errNoLocks = errors.New("its file system cannot lock files")

// ErrMissing means that a state file is missing that nixbench needs to manage existing machines.
var ErrMissing = errors.New("is missing, and machines of the cluster were booted")

// FileError means that a state file is damaged, missing, or of another version. nixbench never replaces such a file by
// an empty file, because the record of deployments would be lost, and a rollback needs this record.
type FileError struct {
	File    string
	Foreign int // the version of the file if this nixbench cannot read this version; otherwise 0
	Err     error
	Fix     string // what the user can do; if empty, Hint returns general advice
}

func (e *FileError) Error() string {
	switch {
	case e.Foreign > 0:
		return fmt.Sprintf("%s has version %d, which this nixbench cannot read", e.File, e.Foreign)
	case errors.Is(e.Err, ErrMissing):
		return fmt.Sprintf("%s %v", e.File, e.Err)
	}
	return fmt.Sprintf("%s is damaged: %v", e.File, e.Err)
}

func (e *FileError) Unwrap() error { return e.Err }
func (e *FileError) Hint() string  { return cmp.Or(e.Fix, "restore it from a backup, or move it away") }
