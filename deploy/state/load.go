package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"al.essio.dev/pkg/shellescape"

	"github.com/nixbench/nixbench/deploy/durable"
)

const version = 3

// Load reads the state. If state.json does not exist and no machine was booted, the state is empty.
func (d Dir) Load() (*State, error) {
	file := d.stateFile()
	data, err := durable.Read(file, durable.ConfigSize)
	if errors.Is(err, os.ErrNotExist) {
		if err := newStateLostError(d, err); err != nil {
			return nil, err
		}
		return (&State{Version: version}).Clone(), nil
	}
	if err != nil {
		return nil, d.Error(err)
	}
	s, err := Decode(file, data)
	if err != nil {
		return nil, newStateLostError(d, err)
	}
	return s, nil
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
	found, err := durable.DecodeJSON(data, version, into)
	switch {
	case err == nil:
		return nil
	case found > 0 && found != version:
		return &FileError{File: file, Foreign: found, Fix: "use the nixbench that wrote it"}
	}
	return &FileError{File: file, Err: err}
}

// BackUp copies the state into the folder of a run. It is called when the run ends. Without this copy, the cluster's id
// and the host keys of its machines would be lost if state.json were lost.
func (d Dir) BackUp(run string) error {
	s, err := d.Load()
	if err != nil {
		return err
	}
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return d.Write(filepath.Join(run, "state.json"), append(data, '\n'))
}

// readLastBackup returns the newest readable copy of the state, and the path of the copy. It returns nil if there is no copy.
func readLastBackup(d Dir) (*State, string) {
	files, _ := filepath.Glob(filepath.Join(string(d), "runs", "[0-9]*", "state.json"))
	for _, file := range slices.Backward(files) { // the newest first, because the name of a run's folder begins with the time of the run
		data, err := durable.Read(file, durable.ConfigSize)
		if err == nil {
			if s, err := Decode(file, data); err == nil {
				return s, file
			}
		}
	}
	return nil, ""
}

func hasMachines(s *State) bool { return s != nil && (s.Cluster != nil || len(s.Machines) > 0) }

// OthersWithMachines returns the names of other clusters of the hive that may have machines: those that it had before a new name.
func (d Dir) OthersWithMachines() []string {
	var out []string
	folders, _ := os.ReadDir(filepath.Dir(string(d)))
	for _, f := range folders {
		s, err := Dir(filepath.Join(filepath.Dir(string(d)), f.Name())).Load()
		if err == nil && hasMachines(s) && f.Name() != filepath.Base(string(d)) {
			out = append(out, f.Name())
		}
	}
	return out
}

// newStateLostError returns the error for an unusable state.json, with a hint how to restore the file. It
// returns nil if the file is missing and no machines were booted. If machines were booted, a missing file is
// an error, because without the cluster's id nixbench cannot recognize these machines.
func newStateLostError(d Dir, cause error) error {
	file := d.stateFile()
	last, copied := readLastBackup(d)
	absent := errors.Is(cause, fs.ErrNotExist)
	if absent && !hasMachines(last) {
		return nil
	}
	fix := "restore it from a backup, or move it away: the next apply then reads from the nodes what they run"
	switch {
	case last != nil:
		fix = fmt.Sprintf("restore the copy of run %s: cp %s %s; the next apply detects what has changed since", filepath.Base(filepath.Dir(copied)), shellescape.Quote(copied), shellescape.Quote(file))
	case durable.Exists(d.ClientKey()) || durable.Exists(d.Facts()):
		fix = "restore it from a backup, and do not start without it: it has the id by which nixbench recognizes the machines that it has booted; " +
			"without a backup they have to be removed by hand on the hypervisor (docs/failures.md)"
	}
	if absent {
		return &FileError{File: file, Err: ErrMissing, Fix: fix}
	}
	var f *FileError
	if errors.As(cause, &f) && f.Fix == "" {
		f.Fix = fix
	}
	return cause
}
