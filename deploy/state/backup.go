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

// backupFile is the copy of the state that a run leaves in its folder.
func (d Dir) backupFile(run string) string { return filepath.Join(d.runDir(run), "state.json") }

// backUp copies the state into the folder of a run that ends. The cluster's id and the host keys of its
// machines are nowhere else on this machine.
func (d Dir) backUp(run string) error {
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

// lastBackup is the newest copy of the state that can be read, and its run; nil if there is none.
func (d Dir) lastBackup() (*State, string) {
	ids, err := d.runIDs()
	if err != nil {
		return nil, ""
	}
	slices.Sort(ids)
	slices.Reverse(ids)
	for _, id := range ids {
		data, err := durable.Read(d.backupFile(id), durable.ConfigSize)
		var s State
		if err == nil && decode(d.backupFile(id), data, version, upgrades(), &s) == nil {
			return &s, id
		}
	}
	return nil, ""
}

// booted reports whether a state knows machines of ours, or may.
func booted(s *State) bool { return s != nil && (s.Cluster != nil || len(s.Machines) > 0) }

// stateLost adds to what is wrong with state.json how it is restored. Where it is not there, that is
// an error only if machines were booted: without the cluster's id they would be taken
// for somebody else's. It is nil if nothing is lost.
func (d Dir) stateLost(cause error) error {
	file := d.stateFile()
	last, run := d.lastBackup()
	absent := errors.Is(cause, fs.ErrNotExist)
	if absent && !booted(last) {
		return nil
	}
	fix := "restore it from a backup, or move it away: the next apply then learns from the nodes what they run"
	switch {
	case last != nil:
		fix = fmt.Sprintf("restore what run %s left: cp %s %s; the next apply finds out what has changed since", run, quoted(d.backupFile(run)), quoted(file))
	case exists(d.ClientKey()) || exists(d.Facts()):
		fix = "restore it from a backup, and do not start without it: it has the id by which nixbench recognizes the machines that it has booted; " +
			"without a backup they have to be removed by hand on the hypervisor (docs/failures.md)"
	}
	if absent {
		return &FileError{File: file, Err: errGone, Fix: fix}
	}
	var f *FileError
	if errors.As(cause, &f) && f.Newer == 0 {
		f.Fix = fix
	}
	return cause
}

// keyLost is why there is no key to the machines that run: it is damaged, or gone. Making another one
// would lock everybody out of them.
func (d Dir) keyLost(why error) error {
	file := d.ClientKey()
	return &FileError{File: file, Err: why, Fix: fmt.Sprintf(
		"restore it from a backup: it is the key that the machines accept. Without one: make another (mv %[1]s %[1]s.old; ssh-keygen -t ed25519 -N '' -f %[1]s) and add %[2]s to root's authorized keys on each machine, at its console or with a key of your own; "+
			"or remove the machines and all that is on their disks: nixbench destroy, which needs no key, then nixbench apply", quoted(file), quoted(file+".pub"))}
}

// needed reports whether machines may run that accept only the client key.
func (d Dir) needed() bool {
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
