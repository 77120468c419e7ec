package state

import (
	"cmp"
	"errors"
	"fmt"

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

// ErrMissing means that a state file is missing that nixbench needs to manage existing machines.
var ErrMissing = errors.New("it is missing, and machines of the cluster were booted")

// NewFileError returns the error for a state file that is damaged, missing, or of another version. nixbench never replaces such a file by
// an empty file, because the record of deployments would be lost, and a rollback needs this record.
func NewFileError(file string, err error, fix string) error {
	return failure.WithHint(fmt.Errorf("%s cannot be used: %w", file, err), cmp.Or(fix, "restore it from a backup, or move it away"))
}
