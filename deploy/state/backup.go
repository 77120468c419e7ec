package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/nixbench/nixbench/deploy/durable"
)

// backupFile returns the path of the copy of state.json in a run's folder.
func (d Dir) backupFile(run string) string { return filepath.Join(d.runDir(run), "state.json") }

// backUpState copies the state into the folder of a run. It is called when the run ends. Without the copy,
// the loss of state.json would lose the cluster's id and the host keys of its machines.
func (d Dir) backUpState(run string) error {
	s, err := d.Load()
	if err != nil {
		return err
	}
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return d.write(d.backupFile(run), append(data, '\n'))
}

// readLastBackup returns the newest readable copy of the state and the id of its run, or nil if there is none.
func (d Dir) readLastBackup() (*State, string) {
	ids, err := d.runIDs()
	if err != nil {
		return nil, ""
	}
	slices.Sort(ids)
	slices.Reverse(ids)
	for _, id := range ids {
		data, err := durable.Read(d.backupFile(id), durable.ConfigSize)
		var s State
		if err == nil && decodeFile(d.backupFile(id), data, version, &s) == nil {
			return &s, id
		}
	}
	return nil, ""
}

// hasMachines reports whether machines of the cluster may exist: the state contains a cluster or machines.
func hasMachines(s *State) bool { return s != nil && (s.Cluster != nil || len(s.Machines) > 0) }

// newStateLostError returns the error for an unusable state.json, with a hint how to restore the file. It
// returns nil if the file is missing and no machines were booted. If machines were booted, a missing file is
// an error, because without the cluster's id nixbench cannot recognize these machines.
func (d Dir) newStateLostError(cause error) error {
	file := d.stateFile()
	last, run := d.readLastBackup()
	absent := errors.Is(cause, fs.ErrNotExist)
	if absent && !hasMachines(last) {
		return nil
	}
	fix := "restore it from a backup, or move it away: the next apply then reads from the nodes what they run"
	switch {
	case last != nil:
		fix = fmt.Sprintf("restore the copy of run %s: cp %s %s; the next apply detects what has changed since", run, quotePath(d.backupFile(run)), quotePath(file))
	case exists(d.ClientKey()) || exists(d.Facts()):
		fix = "restore it from a backup, and do not start without it: it has the id by which nixbench recognizes the machines that it has booted; " +
			"without a backup they have to be removed by hand on the hypervisor (docs/failures.md)"
	}
	if absent {
		return &FileError{File: file, Err: errMissing, Fix: fix}
	}
	var f *FileError
	if errors.As(cause, &f) && f.Foreign == 0 {
		f.Fix = fix
	}
	return cause
}

// newKeyLostError returns the error for a damaged or missing client key if machines exist. nixbench does not
// generate another client key, since the machines would not accept the new key.
func (d Dir) newKeyLostError(why error) error {
	file := d.ClientKey()
	return &FileError{File: file, Err: why, Fix: fmt.Sprintf(
		"restore it from a backup: it is the key that the machines accept. Without one: make another (mv %[1]s %[1]s.old; ssh-keygen -t ed25519 -N '' -f %[1]s) and add %[2]s to root's authorized keys on each machine, at its console or with a key of your own; "+
			"or remove the machines and all that is on their disks: nixbench destroy, which needs no key, then nixbench apply", quotePath(file), quotePath(file+".pub"))}
}

// isClientKeyNeeded reports whether machines may exist that accept only the current client key.
func (d Dir) isClientKeyNeeded() bool {
	s, err := d.Load()
	if err != nil {
		return !errors.Is(err, os.ErrNotExist)
	}
	for _, m := range s.Machines {
		if m.Created != nil {
			return true
		}
	}
	return false
}
