package state

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// LockedError says that another process works on the cluster.
type LockedError struct {
	Dir    Dir
	Holder Holder // empty where the holder has not said who it is
}

func (e *LockedError) Error() string {
	if e.Holder == (Holder{}) {
		return fmt.Sprintf("the cluster is locked by another process (state folder %s)", e.Dir)
	}
	return "the cluster is locked by " + e.Holder.String()
}

// Hint says what to do about it.
func (e *LockedError) Hint() string {
	return "wait until it is done; the lock ends with its process, so there is nothing to remove"
}

// FolderError says that the state folder cannot be used.
type FolderError struct {
	Dir Dir
	Err error
}

func (e *FolderError) Error() string {
	err := e.Err
	if p := (*os.PathError)(nil); errors.As(err, &p) {
		rest := p.Err
		if p.Path != string(e.Dir) {
			rest = fmt.Errorf("%s: %w", p.Path, p.Err)
		}
		return fmt.Sprintf("state folder %s: %v", e.Dir, rest)
	}
	return fmt.Sprintf("state folder %s: %v", e.Dir, err)
}

func (e *FolderError) Unwrap() error { return e.Err }

// Hint says what to do about it.
func (e *FolderError) Hint() string {
	switch {
	case errors.Is(e.Err, errNoLocks):
		return "keep the hive on a local disk"
	case errors.Is(e.Err, unix.EROFS):
		return "the file system is read-only; work on a copy of the hive"
	case errors.Is(e.Err, os.ErrPermission):
		return "the folder must be writable by the user who runs nixbench"
	case errors.Is(e.Err, unix.ENOSPC), errors.Is(e.Err, unix.EDQUOT):
		return "make room; what was written before is whole"
	}
	return ""
}

var errNoLocks = errors.New("its file system cannot lock files")

// errGone is about a file that machines depend on.
var errGone = errors.New("is gone, and machines of the cluster were booted")

// FileError says that a file of the state cannot be understood. It is never
// replaced by an empty one: that would forget what the nodes can go back to.
type FileError struct {
	File  string
	Newer int // the version, where a newer nixbench wrote the file
	Err   error
	Fix   string // what to do about it; empty: it can be restored, or done without
}

func (e *FileError) Error() string {
	if e.Newer > 0 {
		return fmt.Sprintf("%s has version %d, which this nixbench does not know", e.File, e.Newer)
	}
	if errors.Is(e.Err, errGone) {
		return fmt.Sprintf("%s %v", e.File, e.Err)
	}
	return fmt.Sprintf("%s is damaged: %v", e.File, e.Err)
}

func (e *FileError) Unwrap() error { return e.Err }

// Hint says what to do about it.
func (e *FileError) Hint() string {
	if e.Newer > 0 {
		return "use the nixbench that wrote it, or a newer one"
	}
	if e.Fix != "" {
		return e.Fix
	}
	return "restore it from a backup, or move it away"
}

// since is a moment as people tell it: the day only where it is another one.
func since(t, now time.Time) string {
	t, now = t.Local(), now.Local()
	if t.YearDay() == now.YearDay() && t.Year() == now.Year() {
		return t.Format("15:04:05")
	}
	return t.Format("2006-01-02 15:04:05")
}
