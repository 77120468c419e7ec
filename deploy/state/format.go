package state

import (
	"errors"
	"os"

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

// DecodeFile decodes data, the content of a JSON file, and returns an error if its format version is not version.
// Unknown fields are an error, because they would be lost when the file is written again.
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
