package state

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/failure"
)

const version = 3

// Load reads the state. If state.json does not exist and no machine was booted, the state is empty. Otherwise a missing file is an error,
// because without the cluster's id nixbench cannot recognize the machines.
func (d Dir) Load() (*State, error) {
	file := d.stateFile()
	// The client key is made after state.json is written. An import that was interrupted leaves a key without runs.
	hasBooted := durable.Exists(d.ClientKey()) && durable.Exists(filepath.Join(string(d), "runs"))
	data, err := durable.Read(file, durable.ConfigSize)
	var s *State
	switch {
	case errors.Is(err, os.ErrNotExist) && !hasBooted:
		return (&State{Version: version}).Clone(), nil
	case errors.Is(err, os.ErrNotExist):
		err = NewFileError(file, ErrMissing, "")
	case err != nil:
		return nil, d.Error(err)
	default:
		s, err = Decode(file, data)
	}
	if err != nil && hasBooted {
		err = failure.WithHint(err, "restore it from a backup, or import an export with nixbench state import --force, and do not start without it: it has the id by which nixbench recognizes the machines "+
			"that it has booted; without a backup they have to be removed by hand on the hypervisor (docs/failures.md); if another version of nixbench has written it, use that version")
	}
	return s, err
}

// Decode decodes data, the content of a state.json. file is the name of the file for errors.
func Decode(file string, data []byte) (*State, error) {
	var s State
	if err := DecodeFile(file, data, version, &s); err != nil {
		return nil, err
	}
	return s.Clone(), nil
}

// DecodeFile decodes the content of a JSON file as [durable.DecodeJSON] does.
func DecodeFile(file string, data []byte, version int, into any) error {
	if _, err := durable.DecodeJSON(data, version, into); err != nil {
		return NewFileError(file, err, "restore it from a backup, or move it away; if another version of nixbench has written it, use that version")
	}
	return nil
}

// ErrMissing means that a state file is missing that nixbench needs to manage existing machines.
var ErrMissing = errors.New("it is missing, and machines of the cluster were booted")

// NewFileError returns the error for a state file that is damaged, missing, or of another version. nixbench never replaces such a file by
// an empty file, because the record of deployments would be lost, and a rollback needs this record.
func NewFileError(file string, err error, fix string) error {
	return failure.WithHint(fmt.Errorf("%s cannot be used: %w", file, err), cmp.Or(fix, "restore it from a backup, or move it away"))
}

// OthersWithMachines returns the names of other clusters of the hive that may have machines: those that it had before a new name.
func (d Dir) OthersWithMachines() []string {
	var out []string
	folders, _ := os.ReadDir(filepath.Dir(string(d)))
	for _, f := range folders {
		s, err := Dir(filepath.Join(filepath.Dir(string(d)), f.Name())).Load()
		if err == nil && (s.Cluster != nil || len(s.Machines) > 0) && f.Name() != filepath.Base(string(d)) {
			out = append(out, f.Name())
		}
	}
	return out
}
